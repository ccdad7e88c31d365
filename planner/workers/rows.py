"""Lower bounds on the period of a virtual worker, stage by stage: the rows that every execution keeps."""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.arrays import Floats
from stagecut.planner.core.job import Recompute
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.waves import LocalStep
from stagecut.planner.cost.stage_costs import StageCosts
from stagecut.planner.cost.wave_costs import WaveCostModel
from stagecut.planner.workers.kinds import Kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all virtual workers of a plan have in common."""

    in_flight: int
    """N_m."""
    wave: int
    """H."""
    alone: bool
    """Whether there is a single worker, which exchanges nothing."""
    relaxed: bool = False
    """Whether latencies do not count, so that H minibatches take H times as long as the slowest stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRows:
    """Stages [i, j) of one kind of device with n - 1 stages behind them; each of shape (L + 1, L + 1)."""

    compute_s: Floats
    """F + B, recomputation included; infinite if the stage is empty or does not fit."""
    update_s: Floats
    recompute: Floats
    """1 where the stage only fits with recomputation."""


class RowTables:
    """Times of every possible stage, with what the exchange of updates adds.

    A stage is on one device, so that only its kind, its layers, the number of stages behind it and N_m matter.
    """

    def __init__(self, problem: Problem, kinds: Kinds) -> None:
        self.problem, self.kinds, self.model = problem, kinds, WaveCostModel(problem)
        assert problem.job.waves is not None
        self.choices = problem.job.waves
        self.num_layers = problem.model.num_layers
        self._start, self._stop = np.triu_indices(self.num_layers + 1, k=1)
        self._costs: dict[tuple[int, int, bool], StageCosts] = {}
        self._rows: dict[tuple[int, int, int], StageRows] = {}

    def depth(self, in_flight: int, num_behind: int) -> int:
        """Minibatches that a stage holds, with so many stages from itself to the last one.

        One more for every transfer that is to be hidden if a local step follows each minibatch; 1F1B with a flush
        otherwise.
        """
        eager = self.choices.local_step is LocalStep.MINIBATCH
        return min(in_flight, 2 * num_behind - 1 if eager else num_behind)

    def stages(self, kind: int, in_flight: int, num_behind: int) -> StageRows:
        """The stages of one kind with `num_behind` stages from themselves to the last one."""
        depth = self.depth(in_flight, num_behind)
        key = (kind, in_flight, depth)
        if key not in self._rows:
            self._rows[key] = self._stages(kind, in_flight, depth)
        return self._rows[key]

    def _stages(self, kind: int, in_flight: int, depth: int) -> StageRows:
        compute_s, recompute = np.full(len(self._start), np.inf), np.zeros(len(self._start))
        limit_bytes = self.model.stages.device_type(self.kinds.placements[kind]).memory_bytes
        for mode in self._modes:
            costs = self.costs(kind, in_flight, recompute=mode)
            fits = np.isinf(compute_s) & (costs.memory_bytes(np.array(depth)) <= limit_bytes)
            compute_s = np.where(fits, costs.forward_s + costs.backward_s, compute_s)
            recompute = np.where(fits, float(mode), recompute)
        update_s = self.costs(kind, in_flight, recompute=self._modes[0]).update_s
        return StageRows(
            compute_s=self._square(compute_s, np.inf),
            update_s=self._square(update_s, 0.0),
            recompute=self._square(recompute, 0.0),
        )

    @property
    def _modes(self) -> tuple[bool, ...]:
        allowed = self.problem.job.recompute
        return {Recompute.NEVER: (False,), Recompute.ALWAYS: (True,), Recompute.AUTO: (False, True)}[allowed]

    def costs(self, kind: int, in_flight: int, *, recompute: bool) -> StageCosts:
        """Costs of all stages i < j, flat, i in the outer order."""
        key = (kind, in_flight, recompute)
        if key not in self._costs:
            self._costs[key] = self.model.stage_costs(
                self.kinds.placements[kind],
                minibatch=self.problem.job.micro_batches[0],
                in_flight=in_flight,
                local_step=self.choices.local_step,
                recompute=recompute,
                start=self._start,
                stop=self._stop,
            )
        return self._costs[key]

    def layer_bytes(self, in_flight: int, *, depth: int) -> Floats:
        """Memory of each layer as a stage that holds so many minibatches, in the mode that needs least, shape (L, K).

        At depth 0 what does not depend on minibatches.
        """
        alone = np.flatnonzero(self._stop == self._start + 1)
        kinds = range(self.kinds.num_kinds)
        costs = [[self.costs(kind, in_flight, recompute=mode) for kind in kinds] for mode in self._modes]
        needed = [[(own.memory_bytes(np.array(depth)) if depth else own.static_bytes) for own in row] for row in costs]
        least: Floats = np.min(needed, axis=0).T[alone]
        return least

    def _square(self, values: Floats, empty: float) -> Floats:
        square = np.full((self.num_layers + 1, self.num_layers + 1), empty)
        square[self._start, self._stop] = values
        return square
