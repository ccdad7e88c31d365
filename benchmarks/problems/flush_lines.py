"""Lines of processes under a flush: those of a plan for a catalogue model, and simulated ones.

Simulated networks have S stages. Times are drawn uniformly, in milliseconds:

- forward of a stage: 0.5 to 2 per sample, setup 0 to 8; its backward twice as much per sample, another setup;
- message over a boundary, the same in both directions: 0.1 to 1.5 per sample, setup 0 to 4;
- where they saturate, a stage takes as long for any sublot up to a size as for that one: 1, 2, 4, 8 or 16 samples.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.problems.specs import Spec
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.units import MS
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.sized.flush_problem import flush_problem
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.sublots.process_chain import Process, ProcessChain

Flush = tuple[ProcessChain, ProcessChain]
"""Forwards and backwards, both in the order of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFlush:
    """The plan of `greedy` for a catalogue model: one pipeline of single devices, GPipe's schedule."""

    model: str
    cluster: str
    num_samples: int
    sizes: tuple[int, ...]

    @property
    def name(self) -> str:
        """Model, cluster and batch, and the sizes if there are many."""
        return f"{self.model}, {self.cluster}, N {self.num_samples}{_told(self.sizes)}"

    def lines(self) -> Flush:
        """Stages and messages with their times at any number of samples; links are not shared."""
        spec = Spec(
            model=self.model,
            cluster=self.cluster,
            global_batch=self.num_samples,
            replicas=(1,),
            tensor_parallel=(1,),
            pipelines=(1,),
            schedules=(Schedule.GPIPE,),
        )
        problem = spec.problem()
        plan = run(problem, "greedy", SolveOptions()).plan
        assert plan is not None
        whole = Variant(schedule=Schedule.GPIPE, micro_batch=self.num_samples, num_microbatches=1)
        sizing = flush_problem(CostModel(problem), whole, plan, self.sizes, with_tails=False)
        assert sizing is not None
        forward, backward = sizing.sublots.lines
        return forward, backward.reversed()


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFlush:
    """A simulated network."""

    num_stages: int
    num_samples: int
    sizes: tuple[int, ...]
    saturating: bool
    seed: int

    @property
    def name(self) -> str:
        """Kind, stages, batch and seed."""
        kind = "saturating" if self.saturating else "affine"
        return f"{kind}, S {self.num_stages}, N {self.num_samples}{_told(self.sizes)}, seed {self.seed}"

    def lines(self) -> Flush:
        """Drawn anew each time, always the same."""
        random, stages = np.random.default_rng(self.seed), (self.num_stages, 1)
        samples = np.arange(self.num_samples + 1.0)
        flat = random.choice((1, 2, 4, 8, 16), size=stages) if self.saturating else np.zeros(stages)
        work_s = random.uniform(0.5, 2, stages) * np.maximum(samples, flat) * MS
        forward_s, backward_s = (times * work_s + random.uniform(0, 8, stages) * MS for times in (1, 2))
        setup_s, per_sample_s = (random.uniform(low, high, stages) * MS for low, high in ((0, 4), (0.1, 1.5)))
        return flush(forward_s, backward_s, (setup_s + per_sample_s * samples)[1:], self.sizes)


def flush(forward_s: Floats, backward_s: Floats, message_s: Floats, sizes: tuple[int, ...]) -> Flush:
    """Both lines, from seconds by stage or boundary and number of samples, shapes (S, N + 1) and (S - 1, N + 1)."""
    return (
        _line("forward", forward_s, message_s, sizes),
        _line("backward", backward_s[::-1], message_s[::-1], sizes),
    )


def _line(direction: str, stage_s: Floats, message_s: Floats, sizes: tuple[int, ...]) -> ProcessChain:
    """Stages and messages in turn."""
    in_turn = [each for pair in zip(stage_s, message_s, strict=False) for each in pair] + [stage_s[-1]]
    return ProcessChain(
        processes=tuple(
            Process(name=f"{direction} {index}", seconds=seconds, sizes=sizes) for index, seconds in enumerate(in_turn)
        )
    )


def _told(sizes: tuple[int, ...]) -> str:
    return ", all sizes" if len(sizes) == sizes[-1] else ""
