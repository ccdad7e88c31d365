"""A plan of virtual workers bound to layers: what all ranks of a run agree on."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from stagecut.executor.execution_plan import Training, loss_of
from stagecut.executor.play.batch import LossFunction
from stagecut.executor.play.build import Layers, build_layer, chain_of, copy_tied
from stagecut.executor.play.stage import StageModule
from stagecut.executor.waves.setting.layout import Part, WaveLayout
from stagecut.executor.waves.setting.schemes import Merge, Scheme, scheme_of
from stagecut.models.modules.module_chain import ModuleChain
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.waves import Carrier


@dataclass(frozen=True, kw_only=True)
class WaveTraining(Training):
    """How to train, independent of the plan; see :func:`stagecut.executor.waves.loading.load_waves`."""

    scheduler: Callable[[Optimizer], LRScheduler] | None = None
    scheme: Scheme | None = None


@dataclass(frozen=True, kw_only=True)
class WaveExecution:
    """A plan for given layers."""

    plan: WavePlan
    chain: ModuleChain
    layout: WaveLayout
    training: WaveTraining
    scheme: Scheme
    loss: LossFunction

    @classmethod
    def of(
        cls, plan: WavePlan, layers: Layers, training: WaveTraining, *, problem: Problem | None = None
    ) -> "WaveExecution":
        """Bind a plan to layers; modules are copied.

        Raises
        ------
        BadInputError
            If layers, plan, scheme and options do not go together.
        """
        chain = chain_of(layers, problem.model if problem else None, copied=True)
        require(plan.num_layers == len(chain.layers), "executor", "layers", f"{plan.num_layers}", len(chain.layers))
        scheme = training.scheme or scheme_of(plan)
        scheme.check(plan)
        served = plan.carrier is Carrier.PARAMETER_SERVER and len(plan.workers) > 1
        late = scheme.merge.is_step and plan.clock_distance > 0 and served
        rule = "None, because with one step a wave and D > 0 servers send stages a wave's gradients at different times"
        require(training.clip_norm is None or not late, "executor", "clip_norm", rule, training.clip_norm)
        return cls(
            plan=plan,
            chain=chain,
            layout=WaveLayout.of(plan, problem.cluster if problem else None),
            training=training,
            scheme=scheme,
            loss=loss_of(training, chain),
        )

    @property
    def has_global_weights(self) -> bool:
        """Whether parameter servers hold weights; otherwise those of worker 0 count."""
        return bool(self.layout.servers) and self.scheme.merge is not Merge.STEP

    def build(self, layers: Iterable[int], device: torch.device) -> dict[int, nn.Module]:
        """Layers with initial values that depend on the seed alone."""
        seed = self.training.seed
        modules = {layer: build_layer(self.chain, layer, seed=seed).to(device) for layer in layers}
        copy_tied(self.chain, modules, seed=seed)
        return modules

    def stage_module(self, worker: int, stage: int, device: torch.device) -> StageModule:
        """A stage of a worker."""
        planned = self.plan.workers[worker].stages[stage]
        span = range(planned.start, planned.stop)
        names = [self.chain.layers[layer].name for layer in span]
        modules = list(self.build(span, device).values())
        return StageModule(stage, names=names, layers=modules, recompute=planned.recompute)

    def trained(self, layers: Iterable[int], modules: dict[int, nn.Module]) -> dict[str, nn.Parameter]:
        """The trained parameters of some layers, by global name."""
        return {
            f"{self.chain.layers[layer].name}.{name}": parameter
            for layer in layers
            for name, parameter in modules[layer].named_parameters()
            if parameter.requires_grad
        }

    def held(self, part: Part, stage: StageModule) -> list[str]:
        """Global names of the trained parameters of a part of a stage."""
        layers = {self.chain.layers[layer].name for layer in part.layers}
        return [
            f"{name}.{own}"
            for name, module in zip(stage.names, stage.layers, strict=True)
            if name in layers
            for own, parameter in module.named_parameters()
            if parameter.requires_grad
        ]
