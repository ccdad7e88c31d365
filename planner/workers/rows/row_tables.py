"""Lower bounds on the period of a virtual worker, stage by stage: the rows that every execution keeps."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from stagecut.planner.core.job import Recompute
from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.stage_costs import StageCosts
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.workers.rows.kinds import Kinds

DEEPEST = 1 << 20
"""Stands for any number of minibatches, where they take no memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all virtual workers of a plan have in common, or of plans that are bounded together."""

    in_flight: int
    """N_m, or the least of several."""
    wave: int
    """H, or the largest of several."""
    num_workers: int
    """W; a single worker exchanges nothing."""
    deepest: int
    """Minibatches that a stage may hold: N_m, or the largest of several."""
    patience: float = 0.0
    """Periods of a minibatch that both messages over a boundary may wait: rows with more than none are no bounds."""

    @property
    def is_single(self) -> bool:
        """Whether there is one N_m."""
        return self.in_flight == self.deepest

    @staticmethod
    def of(in_flight: int, *, num_workers: int) -> "Setting":
        """One N_m, and waves of as many minibatches."""
        return Setting(in_flight=in_flight, wave=in_flight, num_workers=num_workers, deepest=in_flight)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRows:
    """Stages [start, stop) of one kind of device in one recompute mode; each of shape (n,)."""

    start: Ints
    stop: Ints
    work_s: Floats
    """F + B, recomputation included."""
    update_s: Floats
    most: Ints
    """Minibatches in flight that the stage has memory for; 0 if it does not fit."""

    def only(self, some: Bools | Ints) -> "StageRows":
        """Some of them, or in another order."""
        return StageRows(**{field.name: getattr(self, field.name)[some] for field in fields(self)})

    @staticmethod
    def joined(several: "Sequence[StageRows]") -> "StageRows":
        """Those of several modes."""
        names = [field.name for field in fields(StageRows)]
        return StageRows(**{name: np.concatenate([getattr(own, name) for own in several]) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One stage in one recompute mode: see :class:`StageRows`."""

    recompute: bool
    work_s: float
    update_s: float
    most: int


class RowTables:
    """Times of every possible stage, with what the exchange of updates adds.

    A stage is on one device, so that only its kind, its layers and N_m matter.
    """

    def __init__(self, problem: Problem, kinds: Kinds) -> None:
        self.problem, self.kinds, self.model = problem, kinds, WaveCostModel(problem)
        assert problem.job.waves is not None
        self.choices = problem.job.waves
        self.num_layers = problem.model.num_layers
        self._start, self._stop = np.triu_indices(self.num_layers + 1, k=1)
        self._number = self.square(np.arange(len(self._start)), -1)
        self._costs: dict[tuple[int, int, bool], StageCosts] = {}
        self._rows: dict[tuple[int, int, bool], StageRows] = {}

    @property
    def modes(self) -> tuple[bool, ...]:
        """Whether a stage recomputes: where both are allowed, it does not if it fits without."""
        allowed = self.problem.job.recompute
        return {Recompute.NEVER: (False,), Recompute.ALWAYS: (True,), Recompute.AUTO: (False, True)}[allowed]

    def stages(self, kind: int, in_flight: int, *, recompute: bool) -> StageRows:
        """All stages of one kind, by start and stop."""
        key = (kind, in_flight, recompute)
        if key not in self._rows:
            costs = self.costs(kind, in_flight, recompute=recompute)
            limit_bytes = self.model.stages.device_type(self.kinds.placements[kind]).memory_bytes
            self._rows[key] = StageRows(
                start=self._start,
                stop=self._stop,
                work_s=costs.forward_s + costs.backward_s,
                update_s=costs.update_s,
                most=most_in_memory(costs, limit_bytes),
            )
        return self._rows[key]

    def options(self, kind: int, in_flight: int, start: int, stop: int) -> list[Option]:
        """One stage, in each mode in which it fits."""
        index, found = int(self._number[start, stop]), []
        for mode in self.modes:
            rows = self.stages(kind, in_flight, recompute=mode)
            if rows.most[index] > 0:
                work_s, update_s = float(rows.work_s[index]), float(rows.update_s[index])
                found.append(Option(recompute=mode, work_s=work_s, update_s=update_s, most=int(rows.most[index])))
        return found

    def fitting_work_s(self, kind: int, in_flight: int, depth: int) -> Floats:
        """F + B of the stages [i, j) that hold so many minibatches; infinite where none is, shape (L + 1, L + 1)."""
        work_s = np.full(len(self._start), np.inf)
        for mode in reversed(self.modes):
            rows = self.stages(kind, in_flight, recompute=mode)
            work_s = np.where(rows.most >= depth, rows.work_s, work_s)
        return self.square(work_s, np.inf)

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
        costs = [[self.costs(kind, in_flight, recompute=mode) for kind in kinds] for mode in self.modes]
        needed = [[(own.memory_bytes(np.array(depth)) if depth else own.static_bytes) for own in row] for row in costs]
        least: Floats = np.min(needed, axis=0).T[alone]
        return least

    def square(self, values: Floats | Ints, empty: float) -> Floats:
        """Numbers of all stages as an array of shape (L + 1, L + 1)."""
        square = np.full((self.num_layers + 1, self.num_layers + 1), empty)
        square[self._start, self._stop] = values
        return square


def most_in_memory(costs: StageCosts, limit_bytes: float) -> Ints:
    """The most minibatches that each stage can hold, 0 if none: memory is compared as it is for plans."""
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.floor((limit_bytes - costs.static_bytes - costs.working_bytes) / costs.saved_bytes)
    most: Ints = np.clip(np.nan_to_num(room, nan=DEEPEST), 0, DEEPEST).astype(int)
    most += (most < DEEPEST) & (costs.memory_bytes(most + 1) <= limit_bytes)
    most -= (most > 0) & (costs.memory_bytes(most) > limit_bytes)
    return most
