"""What workers exchange and when: one mechanism for synchronous, bounded-stale and local training."""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import torch

from stagecut.executor.play.optimizers import OptimizerFactory
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.waves import LocalStep, WaveRule


class Gate(StrEnum):
    """Which minibatch of a wave waits for the other workers."""

    FIRST = "first"
    """The first one, before which the worker's pipeline runs empty."""
    LAST = "last"
    """The last one; the pipeline never runs empty."""


class Merge(StrEnum):
    """What becomes of that which workers push at the end of a wave."""

    ADD = "add the updates of the others"
    """Workers push how they have changed their weights; a pull adds what the others have changed."""
    STEP = "step with the gradients of all"
    """Workers push gradients; every worker's optimizer makes one step for each complete wave."""
    REPLACE = "replace by the global weights"
    """Workers push changes; an outer optimizer takes minus their mean for a gradient of the global weights."""

    @property
    def is_step(self) -> bool:
        """Whether gradients are pushed, rather than changes of weights."""
        return self is Merge.STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """A way to train several workers; what it leaves open is the plan's."""

    name: str
    gate: Gate
    merge: Merge
    outer: OptimizerFactory | None = None
    """Makes the outer optimizer, with `Merge.REPLACE`."""
    wave: int | None = None
    """H, minibatches per wave; None: the plan's."""
    in_flight: int | None = None
    """N_m, minibatches in flight; None: the plan's."""
    clock_distance: int | None = None
    """D; None: the plan's."""

    def __post_init__(self) -> None:
        owner, replaces = f"scheme {self.name!r}", self.merge is Merge.REPLACE
        rule = "an optimizer with REPLACE, nothing otherwise"
        require((self.outer is not None) == replaces, owner, "outer", rule, self.outer)
        early = self.gate is Gate.FIRST or self.merge is Merge.ADD
        require(early, owner, "gate", "the first minibatch unless updates are added", self.gate)

    def check(self, plan: WavePlan) -> None:
        """Refuse a plan that the scheme is not defined for."""
        fixed = (("wave", self.wave), ("in_flight", self.in_flight))
        for index, worker in enumerate(plan.workers):
            for field, value in fixed:
                got = getattr(worker, field)
                require(value in (None, got), f"worker {index}, trained by {self.name}", field, f"{value}", got)
        got = plan.clock_distance
        expected = f"{self.clock_distance}"
        require(self.clock_distance in (None, got), f"{self.name}", "clock_distance", expected, got)

    def rule_of(self, plan: WavePlan, worker: VirtualWorker) -> WaveRule:
        """When a worker waits for the others, by its gate."""
        gate_step = LocalStep.WAVE if self.gate is Gate.FIRST else LocalStep.MINIBATCH
        return WaveRule(wave=worker.wave, clock_distance=plan.clock_distance, local_step=gate_step)


WSP = Scheme(name="wsp", gate=Gate.LAST, merge=Merge.ADD)
"""Wave-synchronous parallel: HetPipe (Park et al., USENIX ATC 2020)."""
SSP = Scheme(name="ssp", gate=Gate.LAST, merge=Merge.ADD, wave=1, in_flight=1)
"""Stale-synchronous parallel (Ho et al., NIPS 2013): a clock for each minibatch."""
BSP = Scheme(name="bsp", gate=Gate.FIRST, merge=Merge.STEP, wave=1, in_flight=1, clock_distance=0)
"""Bulk-synchronous parallel: a step with the gradients of one minibatch of every worker."""
SYNCHRONOUS = Scheme(name="synchronous", gate=Gate.FIRST, merge=Merge.STEP)
"""One step a wave; with D = 0 synchronous training of pipelines of different shape."""
LOCAL_SGD = Scheme(
    name="local-sgd",
    gate=Gate.FIRST,
    merge=Merge.REPLACE,
    outer=partial(torch.optim.SGD, lr=1.0),
    clock_distance=0,
)
"""The mean of all workers' parameters after every H steps (Stich, ICLR 2019): an outer step of length 1."""
DILOCO = Scheme(
    name="diloco",
    gate=Gate.FIRST,
    merge=Merge.REPLACE,
    outer=partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True),
)
"""Local training with Nesterov's momentum outside (Douillard et al., arXiv 2311.08105, whose values these are)."""
SCHEMES = {scheme.name: scheme for scheme in (BSP, SSP, WSP, SYNCHRONOUS, LOCAL_SGD, DILOCO)}


def scheme_of(plan: WavePlan) -> Scheme:
    """The scheme of a plan by itself."""
    return SYNCHRONOUS if plan.local_step is LocalStep.WAVE else WSP
