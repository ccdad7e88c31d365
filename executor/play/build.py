"""Builds stage modules from a plan and a chain of layers; each rank builds only its own layers."""

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from stagecut.executor.play.stage import StageModule
from stagecut.executor.schedule.rank_layout import Role
from stagecut.models.modules.module_chain import LayerModule, ModuleChain, Tie
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.plan import Plan

SEED_STRIDE = 1_000_003
"""Prime, so that neighbouring seeds and layers do not collide."""

Layers = ModuleChain | Sequence[nn.Module] | Sequence[Callable[[], nn.Module]]


def chain_of(layers: Layers, profile: ModelProfile | None = None, *, copied: bool = False) -> ModuleChain:
    """A chain of layers from a chain, modules, or functions that build modules.

    Modules are used as they are, unless `copied`; weights shared by two of them are tied.

    Parameters
    ----------
    profile
        The model that was planned, which the layers must match, and which provides names for layers without any.
    copied
        Whether every rank gets its own copy of the modules, which ranks in one process need.

    Raises
    ------
    BadInputError
        If there are no layers, one is neither a module nor a function, or they do not match the profile.
    """
    if isinstance(layers, ModuleChain):
        _check_names(layers, profile)
        return layers
    require(len(layers) > 0, "executor", "layers", "not empty", layers)
    builders = [_builder(layer, index, copied=copied) for index, layer in enumerate(layers)]
    _check_number("the list of layers", len(builders), profile)
    names = [layer.name for layer in profile.layers] if profile else [f"layer{i}" for i in range(len(builders))]
    return ModuleChain(
        name=profile.name if profile else "layers",
        layers=tuple(LayerModule(name=name, build=build) for name, build in zip(names, builders, strict=True)),
        ties=_ties_of(layers),
        loss=None,
        batch=None,
    )


def _check_names(chain: ModuleChain, profile: ModelProfile | None) -> None:
    _check_number(f"model {chain.name!r}", len(chain.layers), profile)
    for index, planned in enumerate(profile.layers if profile else ()):
        name = chain.layers[index].name
        if name != planned.name:
            raise BadInputError(
                f"layer {index} of model {chain.name!r} is {name!r}, but the plan was made for {planned.name!r}; "
                "run the model that was planned, or plan this one"
            )


def _check_number(owner: str, num_layers: int, profile: ModelProfile | None) -> None:
    if profile is not None and num_layers != profile.num_layers:
        raise BadInputError(
            f"{owner} has {num_layers} layers, but the plan was made for the {profile.num_layers} of {profile.name!r}; "
            "run the model that was planned, or plan this one"
        )


def build_stages(chain: ModuleChain, plan: Plan, role: Role, *, seed: int, device: torch.device) -> list[StageModule]:
    """The stages of one rank, with initial values that do not depend on the partition.

    Every layer is initialised with a generator of its own, seeded from `seed` and the layer's index; tied copies start
    with their owner's values.

    Raises
    ------
    BadInputError
        If the plan's last stage does not end with the chain's last layer.
    """
    stop = plan.stages[-1].stop
    require(stop == len(chain.layers), "executor", "layers", f"{stop}, as in the plan", len(chain.layers))
    stages = []
    for index in role.stages:
        planned = plan.stages[index]
        span = range(planned.start, planned.stop)
        modules = {layer: build_layer(chain, layer, seed=seed).to(device) for layer in span}
        copy_tied(chain, modules, seed=seed)
        names = [chain.layers[layer].name for layer in span]
        stages.append(StageModule(index, names=names, layers=list(modules.values()), recompute=planned.recompute))
    return stages


def build_layer(chain: ModuleChain, index: int, *, seed: int) -> nn.Module:
    """One layer with its own initial values; the state of torch's generator is preserved."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed * SEED_STRIDE + index)
        return chain.layers[index].build()


def share_tied(chain: ModuleChain, stages: Sequence[StageModule]) -> dict[str, str]:
    """Merge tied weights on one rank into one parameter; return the owner's global name for each copy's."""
    modules = {name: layer for stage in stages for name, layer in zip(stage.names, stage.layers, strict=True)}
    owners = {}
    for tie in chain.ties:
        owner, weight = chain.layers[tie.owner[0]].name, tie.owner[1]
        other, name = chain.layers[tie.copy[0]].name, tie.copy[1]
        owners[f"{other}.{name}"] = f"{owner}.{weight}"
        if owner in modules and other in modules:
            set_parameter(modules[other], name, modules[owner].get_parameter(weight))
    return owners


def copy_tied(chain: ModuleChain, modules: Mapping[int, nn.Module], *, seed: int) -> None:
    """Let tied copies start with their owner's values."""
    for tie in chain.ties:
        layer, name = tie.copy
        if layer in modules:
            owner = modules.get(tie.owner[0]) or build_layer(chain, tie.owner[0], seed=seed)
            with torch.no_grad():
                modules[layer].get_parameter(name).copy_(owner.get_parameter(tie.owner[1]))


def set_parameter(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    """Replace a parameter of a module, given by its name."""
    path, _, own = name.rpartition(".")
    setattr(module.get_submodule(path), own, parameter)


def _builder(layer: object, index: int, *, copied: bool) -> Callable[[], nn.Module]:
    if isinstance(layer, nn.Module):
        return lambda: copy.deepcopy(layer) if copied else layer
    if callable(layer):
        return layer
    raise BadInputError(f"layer {index}: must be a torch module or a function that builds one, got {layer!r}")


def _ties_of(layers: Sequence[nn.Module] | Sequence[Callable[[], nn.Module]]) -> tuple[Tie, ...]:
    first: dict[nn.Parameter, tuple[int, str]] = {}
    ties = []
    for index, layer in enumerate(layers):
        if isinstance(layer, nn.Module):
            for name, parameter in layer.named_parameters():
                owner = first.setdefault(parameter, (index, name))
                if owner[0] != index:
                    ties.append(Tie(owner=owner, copy=(index, name)))
    return tuple(ties)
