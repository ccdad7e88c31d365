"""From a plan and layers to a pipeline."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from stagecut.executor.design import AnyPlan, Design, Training
from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.batch import CountFunction, LossFunction
from stagecut.executor.play.build import SEED_STRIDE, Layers, build_stages, share_tied
from stagecut.executor.play.clock import clock_for
from stagecut.executor.play.distributed import TORCH_DISTRIBUTED, Distributed
from stagecut.executor.play.gradients import GradientSync, groups_of
from stagecut.executor.play.layout import Layout, Role
from stagecut.executor.play.optimizers import DEFAULT, OptimizerFactory, build_optimizer, build_zero1
from stagecut.executor.play.pace import FullSpeed, Pace
from stagecut.executor.play.stage import StageModule
from stagecut.executor.play.tensor_parallel import share_layer
from stagecut.executor.play.thread_transport import Hub
from stagecut.executor.play.transport import DistributedTransport, Transport
from stagecut.executor.run.script_faults import tell_faults
from stagecut.executor.run.watched_transport import WatchedTransport
from stagecut.executor.run.world import World
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.simulator.action_lists import Action

PaceMaker = Callable[[Role], Pace]
"""Makes the pace of a rank."""
Groups = Mapping[tuple[int, ...], dist.ProcessGroup]


def load(  # noqa: PLR0913
    plan: AnyPlan,
    layers: Layers,
    loss_fn: LossFunction | None = None,
    optimizer: OptimizerFactory = DEFAULT,
    *,
    count: CountFunction | None = None,
    clip_norm: float | None = None,
    autocast: torch.dtype | None = None,
    seed: int = 0,
    check_batches: bool = True,
    check_finite: bool = True,
    actions: Sequence[Sequence[Action]] | None = None,
    shares: Sequence[Sequence[int]] | None = None,
    device: torch.device | None = None,
    pace: PaceMaker | None = None,
    world: World | None = None,
) -> Pipeline:
    """Build this rank's part of a plan; all ranks of `torch.distributed` call it together.

    Parameters
    ----------
    plan
        A plan, a plan file, or the path of one.
    layers
        A chain of layers, or a list of modules or of functions that build them, one for each layer
        of the plan's model. A rank builds its own layers only; their initial values follow from `seed`
        alone, whatever the partition. Copies of modules that were given ready take over the values of
        the first one where they differ, with a warning.
    loss_fn
        loss_fn(output, targets) is the mean over the samples it is given; with `count` it is their sum.
        None: the chain's own.
    optimizer
        Makes an optimizer of parameters, for example `functools.partial(torch.optim.SGD, lr=0.1)`;
        where the plan's job asks for ZeRO-1 its state is divided over the copies of a stage.
    count
        What the sum of the losses is divided by, from the targets of the global batch: tokens that
        are not padding, for example. None: every sample weighs the same.
    clip_norm
        Largest norm of the gradient of the whole model.
    autocast
        Type in which torch's autocast computes; None: the layers' own.
    check_batches
        Whether to compare the batches of all ranks before every call: a pass over them and a small message.
    check_finite
        Whether to stop at a loss that is infinite or no number, before it reaches the weights.
    actions
        Action lists, one for each device group, in place of those of the plan's schedule.
    shares
        For each device group, in which proportion its replicas divide micro-batches; None: evenly.
    device
        None: the current GPU if the backend is NCCL, else the CPU.
    pace
        None: as fast as it goes.
    world
        As :func:`executor.run.world.join_world` gave it: a rank that waits in vain then says for whom. None: it
        says only that it did.

    Raises
    ------
    BadInputError
        If the layers are not the plan's, the number of ranks is not that of its devices, the action
        lists cannot be played, or there is no loss.
    """
    if world is None:
        tell_faults()
    training = Training(
        loss_fn=loss_fn,
        optimizer=optimizer,
        count=count,
        clip_norm=clip_norm,
        autocast=autocast,
        seed=seed,
        check_batches=check_batches,
        check_finite=check_finite,
    )
    design = Design.of(plan, layers, training, actions=actions, shares=shares)
    device = device or _own_device()
    role, groups, transport = _join(design, device)
    pipeline = assemble(
        design,
        role,
        transport=transport if world is None else WatchedTransport(transport, world),
        device=device,
        groups=groups,
        pace=pace(role) if pace else FullSpeed(),
    )
    pipeline.start_alike()
    _draw_apart(design, role, transport)
    return pipeline


def assemble(
    design: Design,
    role: Role,
    *,
    transport: Transport,
    device: torch.device,
    groups: Groups,
    pace: Pace,
    alone: AbstractContextManager[object] | None = None,
) -> Pipeline:
    """One rank's pipeline.

    Parameters
    ----------
    groups
        Process groups by ranks: for tensor parallelism and ZeRO-1, which torch does by itself.
    alone
        Held while the rank computes; None: it may compute beside others.
    """
    stages = build_stages(design.chain, design.plan, role, seed=design.training.seed, device=device)
    _share_layers(design, role, stages, groups=groups, device=device)
    parameters = _named(stages, share_tied(design.chain, stages))
    return Pipeline(
        model=design.chain.name,
        plan_hash=design.plan_hash,
        layout=design.layout,
        role=role,
        stages=tuple(stages),
        parameters=parameters,
        optimizer=_optimizer(design, role, parameters, groups),
        transport=transport,
        device=device,
        global_batch=design.global_batch,
        loss=design.loss,
        turns=design.turns(role.pipeline, training=True)[role.rank],
        forward_turns=design.turns(role.pipeline, training=False)[role.rank],
        sync=GradientSync(
            layout=design.layout, role=role, transport=transport, parameters=parameters, tied=design.tied, device=device
        ),
        tied=design.tied,
        clock=clock_for(device),
        pace=pace,
        alone=alone or nullcontext(),
        autocast=design.training.autocast,
        check_batches=design.training.check_batches,
        check_finite=design.training.check_finite,
        clip_norm=design.training.clip_norm,
    )


def _join(design: Design, device: torch.device) -> tuple[Role, Groups, Transport]:
    """The process among the others; a plan for one device needs no others."""
    layout = design.layout
    num_ranks = dist.get_world_size() if dist.is_initialized() else 1
    if num_ranks != layout.world_size:
        raise BadInputError(
            f"executor: the plan has {layout.world_size} devices, one process for each, but there are {num_ranks}; "
            f"start as many, for example by torchrun --nproc-per-node {layout.world_size}"
        )
    if not dist.is_initialized():
        return layout.roles[0], {}, Hub(1).transport(0)
    tagged = device.type != "cuda" or "nccl" not in dist.get_backend_config()
    transport = transport_of(design, tagged=tagged)
    transport.connect(device)
    return layout.roles[dist.get_rank()], transport.groups, transport


def transport_of(design: Design, *, tagged: bool, distributed: Distributed = TORCH_DISTRIBUTED) -> DistributedTransport:
    """The groups and pairs of a design over torch.distributed, or over what stands for it.

    Parameters
    ----------
    tagged
        Whether messages may overtake each other, as over gloo.
    """
    groups = groups_of(design.layout, design.tied)
    pairs = () if tagged else _pairs(design)
    return DistributedTransport(tagged=tagged, groups=groups, pairs=pairs, distributed=distributed)


def _pairs(design: Design) -> list[tuple[int, int]]:
    """Source and target of all messages between ranks, ascending."""
    turns = (
        own for pipeline in range(design.layout.num_pipelines) for own in design.turns(pipeline, training=True).values()
    )
    sends = (message for own in turns for turn in own for message in turn.sends if not message.is_local)
    return sorted({(message.source, message.target) for message in sends})


def _own_device() -> torch.device:
    if dist.is_initialized() and "nccl" in dist.get_backend_config():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _draw_apart(design: Design, role: Role, transport: Transport) -> None:
    """Dropout masks of their own for every replica and stage; devices that share a replica draw alike.

    All take the seed of rank 0: users may give one for each rank.
    """
    layout: Layout = design.layout
    first = layout.rank_of(role.pipeline, role.stages[0], replica=role.replica, tensor_rank=0)
    seed = transport.broadcast(design.training.seed, 0)
    assert isinstance(seed, int)
    torch.manual_seed((seed + 1) * SEED_STRIDE - 1 - first)


def _share_layers(
    design: Design, role: Role, stages: Sequence[StageModule], *, groups: Groups, device: torch.device
) -> None:
    ranks = design.layout.sharing_ranks(role)
    if len(ranks) == 1:
        return
    for stage in stages:
        first = design.plan.stages[stage.index].start
        for offset, module in enumerate(stage.layers):
            layer = design.chain.layers[first + offset]
            if layer.tensor_parallel is not None and ranks not in groups:
                raise BadInputError("executor: tensor parallelism needs a process for each device")
            if layer.tensor_parallel is not None:
                stage.layers[offset] = share_layer(module, layer, groups[ranks], device)


def _named(stages: Sequence[StageModule], owners: Mapping[str, str]) -> dict[int, dict[str, nn.Parameter]]:
    """Parameters of each stage by global name; a tied one once, under its owner's."""
    named: dict[int, dict[str, nn.Parameter]] = {}
    seen: set[str] = set()
    for stage in stages:
        own = ((owners.get(name, name), parameter) for name, parameter in stage.global_parameters())
        named[stage.index] = {name: parameter for name, parameter in own if name not in seen}
        seen |= set(named[stage.index])
    return named


def _optimizer(
    design: Design, role: Role, parameters: Mapping[int, Mapping[str, nn.Parameter]], groups: Groups
) -> Optimizer:
    every = {name: parameter for own in parameters.values() for name, parameter in own.items()}
    copies = design.layout.copies(role.stages[0], role.tensor_rank)
    if every and design.zero1 and len(copies) > 1 and copies in groups:
        return build_zero1(every, design.training.optimizer, groups[copies])
    return build_optimizer(every, design.training.optimizer)
