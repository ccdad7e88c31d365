"""Options of `plan run`, and the pipelines built from them."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from stagecut.executor.dilated.dilation import dilation_for
from stagecut.executor.dilated.stand_in_layers import stand_ins
from stagecut.executor.execution_plan import Training
from stagecut.executor.loading import PaceMaker, load
from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.batch import Batch
from stagecut.executor.play.optimizers import OptimizerFactory
from stagecut.executor.ranks.environment import TIMEOUT_S
from stagecut.executor.ranks.world import World
from stagecut.executor.run.layer_source import layers_of
from stagecut.executor.team import Team
from stagecut.models.modules.module_chain import ModuleChain
from stagecut.planner.core.run_record import RunMode
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.io.files.wave_plan_file import AnyPlanFile

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
MOMENTUM = 0.9
LARGEST_SCALE = 1000.0
"""Time scale allowed for in timeouts before the actual one is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run a plan."""

    num_steps: int
    """Measured steps."""
    warmup: int
    """Unmeasured steps before them."""
    mode: RunMode = RunMode.REAL
    timeout_s: float = TIMEOUT_S
    """How long a rank waits for another."""
    check: bool = False
    """Compare a step with a single process; turns dropout off."""
    device: str = "cpu"
    """`cpu` or `cuda`."""
    layers: str | None = None
    """See :func:`stagecut.executor.run.layer_source.layers_of`."""
    seed: int = 0
    learning_rate: float = 1e-3
    check_finite: bool = True
    """Stop at the first loss that is not finite; ignored in dilated mode, where only times matter."""
    autocast: str | None = None
    """`bf16` or `fp16`; None: the layers' own precision."""
    stand_ins: bool = False
    """Run trivial layers in place of the model's."""
    time_scale: float | None = None
    """Time scale of a dilated run; None: found before its first step."""
    drop_workers: bool = False
    """Go on without a virtual worker of which a rank dies."""

    def chain(self, plan_file: AnyPlanFile) -> ModuleChain:
        """The layers to run, not yet built."""
        if self.stand_ins:
            return stand_ins(plan_file.problem.model)
        return layers_of(plan_file.problem.model, source=self.layers, dropout=0.0 if self.check else None)

    def process_timeout_s(self, plan_file: PlanFile) -> float:
        """How long a process waits for another; in dilated mode longer by the longest possible iteration."""
        if self.mode is RunMode.REAL:
            return self.timeout_s
        return self.timeout_s + (self.time_scale or LARGEST_SCALE) * plan_file.predicted.iteration_s

    def optimizer(self, plan_file: AnyPlanFile) -> OptimizerFactory:
        """The optimizer named by the job, or AdamW if it is neither of `OPTIMIZERS`."""
        name = plan_file.problem.job.optimizer.name
        extra = {"momentum": MOMENTUM} if name == "sgd" else {}
        return functools.partial(OPTIMIZERS.get(name, torch.optim.AdamW), lr=self.learning_rate, **extra)

    def training(self, plan_file: AnyPlanFile) -> Training:
        """How to train, for :class:`stagecut.executor.team.Team`."""
        return Training(
            optimizer=self.optimizer(plan_file),
            autocast=None if self.autocast is None else AUTOCAST[self.autocast],
            seed=self.seed,
            check_finite=self.check_finite and self.mode is RunMode.REAL,
        )


def build_pipeline(plan_file: PlanFile, options: RunOptions, world: World) -> tuple[Pipeline, Batch]:
    """One rank's part of the plan, and the global batch."""
    chain = options.chain(plan_file)
    assert chain.batch is not None  # checked by `layers_of`
    training, pace = options.training(plan_file), None
    if options.mode is RunMode.DILATED:
        pace = dilation_for(plan_file, folder=world.shared_folder(), timeout_s=options.timeout_s)
    pipeline = load(
        plan_file,
        chain,
        optimizer=training.optimizer,
        autocast=training.autocast,
        seed=training.seed,
        check_finite=training.check_finite,
        device=world.device,
        pace=pace,
        world=world,
    )
    return pipeline, chain.batch(pipeline.global_batch, torch.Generator().manual_seed(options.seed))


def build_team(plan_file: PlanFile, options: RunOptions, *, pace: PaceMaker | None) -> tuple[Team, Batch]:
    """All ranks of the plan as threads of this process, and the global batch."""
    chain = options.chain(plan_file)
    assert chain.batch is not None  # checked by `layers_of`
    device = torch.device(options.device) if options.device != "auto" else None
    team = Team(plan_file, chain, options.training(plan_file), device=device, pace=pace)
    global_batch = team.pipelines[0].global_batch
    return team, chain.batch(global_batch, torch.Generator().manual_seed(options.seed))
