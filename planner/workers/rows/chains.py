"""The rows of virtual workers as chain programs: which patterns keep a period, with which stages."""

from collections.abc import Callable

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.tolerances import ALMOST_ZERO, PATH_SUM
from stagecut.planner.core.waves import LocalStep
from stagecut.planner.workers.rows.chain_program import Runs, SuffixValues
from stagecut.planner.workers.rows.exchange import ExchangeBounds, Turn
from stagecut.planner.workers.rows.kinds import Counts, Lattice, Resource
from stagecut.planner.workers.rows.row_tables import RowTables, Setting, StageRows

Prices = tuple[tuple[Resource, float], ...]
"""Of resources whose load is added up."""


class Chains:
    """The patterns of one problem and what their workers achieve at best."""

    def __init__(self, tables: RowTables, lattice: Lattice) -> None:
        self.tables, self.lattice, self.kinds = tables, lattice, tables.kinds
        self.exchange = ExchangeBounds(tables)
        self.flushes = tables.choices.local_step is LocalStep.WAVE
        self._boundary_loads: dict[Resource, Floats] = {}
        self._latencies: dict[tuple[int, int], Floats] = {}

    def exchange_s(self, kind: int, num_workers: int) -> Floats:
        """See :meth:`ExchangeBounds.latency_s`."""
        key = (kind, num_workers)
        if key not in self._latencies:
            self._latencies[key] = self.exchange.latency_s(*key)
        return self._latencies[key]

    def boundary_load_s(self, resource: Resource) -> Floats:
        """See :meth:`Kinds.boundary_load_s`."""
        if resource not in self._boundary_loads:
            self._boundary_loads[resource] = self.kinds.boundary_load_s(resource)
        return self._boundary_loads[resource]

    def fastest(self, setting: Setting, period_s: float, turn: Turn | None = None) -> SuffixValues:
        """Workers that make a wave within `period_s`; the value of a pattern is infinite if there is none.

        With a local step after each minibatch, tau = period / H, a stage that holds k minibatches, V the round trip of
        a minibatch from its forward to its backward there, and X the time from the forward of minibatch p + k - 1 to
        the backward of minibatch p, all in a schedule that repeats after tau:

            F + B + U <= tau,   k = ceil((F + B + 2 c + X' + U) / tau),   X = max(F + B + 2 c + X', F + B + (k - 1) tau)

        where X' belongs to the stage behind; k is the least depth that keeps tau. The gate of wave c waits for the push
        of wave c - 1 - D and a pull:

            V = F + B + 2 c + V',   V + U + push + pull <= (D + 1) H tau

        With one step a wave, V is the time from the first forward to the last backward of a wave on a stage:

            V = max(H (F + B), F + B + 2 c + V'),   H (F + B) + U <= T,   V + [D = 0] U <= T,
            V + [D = 0] U + push + pull <= (D + 1) T

        With a `turn`, workers that may be the ones which :meth:`ExchangeBounds.turns` speaks of.
        """
        links = np.stack([self._links(setting, period_s)] * (1 if self.flushes else 2))
        return SuffixValues(self.lattice, self._runs(setting, period_s, turn), links)

    def slowest_stage(self, in_flight: int) -> SuffixValues:
        """Seconds per minibatch of the slowest stage at least, with memory for N_m, every latency and link left out."""

        def runs(kind: int) -> Runs:
            rows = self._rows(kind, in_flight, deepest=1)
            busy_s = (rows.work_s if self.flushes else rows.work_s + rows.update_s)[:, None]
            return Runs(start=rows.start, stop=rows.stop, grown=lambda behind: np.maximum(behind, busy_s))

        links = np.zeros((1, *self.kinds.transfer_s.shape))
        return SuffixValues(self.lattice, [runs(kind) for kind in range(self.kinds.num_kinds)], links)

    def least_load(self, setting: Setting, period_s: float, prices: Prices) -> SuffixValues:
        """The least priced seconds for which messages of workers that keep a period occupy links in a wave."""
        boundary = sum(price * self.boundary_load_s(resource) for resource, price in prices) * setting.wave
        links = self._links(setting, period_s)
        load = np.where(np.isfinite(links), boundary, np.inf)
        runs = [_loaded(own) for own in self._runs(setting, period_s)]
        return SuffixValues(self.lattice, runs, np.stack([links] * (1 if self.flushes else 2) + [load]))

    def _runs(self, setting: Setting, period_s: float, turn: Turn | None = None) -> list[Runs]:
        return [self._runs_of(kind, setting, period_s, turn) for kind in range(self.kinds.num_kinds)]

    def _runs_of(self, kind: int, setting: Setting, period_s: float, turn: Turn | None) -> Runs:
        rows = self._rows(kind, setting.in_flight, deepest=setting.deepest)
        steps = 1 if self.flushes else setting.wave
        rows = rows.only(setting.wave * rows.work_s + steps * rows.update_s <= period_s * (1 + PATH_SUM))
        distance = self.tables.choices.clock_distance
        step_s = rows.update_s * (not self.flushes or distance == 0)
        latest_s = np.full(len(step_s), period_s) if self.flushes else np.full(len(step_s), np.inf)
        if setting.num_workers > 1:
            exchange_s = self.exchange_s(kind, setting.num_workers)[rows.start, rows.stop]
            latest_s = np.minimum(latest_s, (distance + 1) * period_s - exchange_s)
        if turn is not None:
            counted_s = np.where(turn.counts_step[rows.start, rows.stop], 0.0, step_s)
            latest_s = np.minimum(latest_s, period_s - turn.after_s[rows.start, rows.stop] + counted_s)
        latest_s = latest_s * (1 + PATH_SUM) - step_s
        grown = _flushed(rows, latest_s, setting) if self.flushes else _cyclic(rows, latest_s, setting, period_s)
        return Runs(start=rows.start, stop=rows.stop, grown=grown)

    def _rows(self, kind: int, in_flight: int, *, deepest: int) -> StageRows:
        """Stages in all modes, by start; those that recompute only where they can hold more minibatches for it."""
        found: list[StageRows] = []
        before: Ints = np.array(0)
        for mode in self.tables.modes:
            rows = self.tables.stages(kind, in_flight, recompute=mode)
            found.append(rows.only((rows.most > before) & (before < deepest)))
            before = rows.most
        joined = StageRows.joined(found)
        return joined.only(np.argsort(joined.start, kind="stable"))

    def _links(self, setting: Setting, period_s: float) -> Floats:
        """Both messages of a boundary; infinite if the queue for them is longer than the period."""
        transfer_s = self.kinds.transfer_s
        queue_s = setting.wave * np.where(self.kinds.one_queue[:, :, None], 2, 1) * transfer_s
        away_s = 2 * transfer_s + setting.patience * period_s / setting.wave
        return np.where(queue_s <= period_s * (1 + PATH_SUM), away_s, np.inf)


def _cyclic(rows: StageRows, latest_s: Floats, setting: Setting, period_s: float) -> Callable[[Floats], Floats]:
    """V, then X."""
    tau, work_s, update_s = max(period_s / setting.wave, ALMOST_ZERO), rows.work_s[:, None], rows.update_s[:, None]
    latest_s, most = latest_s[:, None], np.minimum(rows.most, setting.deepest)[:, None]

    def grown(behind: Floats) -> Floats:
        values = behind[:2] + work_s
        depth = np.maximum(1, np.ceil((values[1] + update_s) / tau * (1 - PATH_SUM) - PATH_SUM))
        may_be = (values[0] <= latest_s) & (depth <= most)
        values[1] = np.maximum(values[1], work_s + (depth - 1) * tau)
        return np.where(may_be, values, np.inf)

    return grown


def _flushed(rows: StageRows, latest_s: Floats, setting: Setting) -> Callable[[Floats], Floats]:
    """V."""
    work_s, latest_s = rows.work_s[:, None], latest_s[:, None]

    def grown(behind: Floats) -> Floats:
        values = np.maximum(behind[:1] + work_s, setting.wave * work_s)
        return np.where(values <= latest_s, values, np.inf)

    return grown


def _loaded(runs: Runs) -> Runs:
    """The load of links behind the values of the rows."""

    def grown(behind: Floats) -> Floats:
        values = runs.grown(behind[:-1])
        load = np.where(np.isfinite(values).all(axis=0), behind[-1], np.inf)
        return np.concatenate((values, load[None]))

    return Runs(start=runs.start, stop=runs.stop, grown=grown)


def patterns_of(values: list[Floats], lattice: Lattice) -> list[tuple[Counts, float]]:
    """The patterns with finite values, the smallest first."""
    return [
        (tuple(lattice.levels[number][row].tolist()), float(level[row]))
        for number, level in enumerate(values)
        for row in np.flatnonzero(np.isfinite(level)).tolist()
    ]
