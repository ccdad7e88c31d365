"""The rows of virtual workers as chain programs: which patterns keep a period, with which stages."""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.arrays import Floats
from stagecut.planner.core.tolerances import PATH_SUM
from stagecut.planner.core.waves import LocalStep
from stagecut.planner.workers.chain_program import SuffixValues, Terms
from stagecut.planner.workers.exchange import ExchangeBounds
from stagecut.planner.workers.kinds import Counts, Lattice, Resource
from stagecut.planner.workers.rows import RowTables, Setting

Prices = tuple[tuple[Resource, float], ...]
"""Of resources whose load is added up."""


class Chains:
    """The patterns of one problem and what their workers achieve at best."""

    def __init__(self, tables: RowTables, lattice: Lattice) -> None:
        self.tables, self.lattice, self.kinds = tables, lattice, tables.kinds
        self.exchange = ExchangeBounds(tables)
        self._boundary_loads: dict[Resource, Floats] = {}
        self._latencies: dict[int, Floats] = {}

    def exchange_s(self, kind: int) -> Floats:
        """See :meth:`ExchangeBounds.latency_s`."""
        if kind not in self._latencies:
            self._latencies[kind] = self.exchange.latency_s(kind)
        return self._latencies[kind]

    def boundary_load_s(self, resource: Resource) -> Floats:
        """See :meth:`Kinds.boundary_load_s`."""
        if resource not in self._boundary_loads:
            self._boundary_loads[resource] = self.kinds.boundary_load_s(resource)
        return self._boundary_loads[resource]

    def fastest(self, setting: Setting, period_s: float) -> SuffixValues:
        """Workers that make a wave within `period_s`; the value of a pattern is infinite if there is none.

        With a local step after each minibatch, tau = period / H, and V is the round trip of a minibatch from the
        forward of a stage to its backward. A stage that holds k minibatches starts minibatch p + k after the step of p,
        and the gate of wave c after the push of wave c - 1 - D and a pull:

            F + B + U <= tau,   V + U <= k tau,   V + U + push + pull <= (D + 1) H tau

        With one step a wave, V is the time from the first forward to the last backward of a wave on a stage:
        """
        return SuffixValues(self.lattice, _FastTerms(self, setting, period_s).of, self._links(setting, period_s))

    def slowest_stage(self, in_flight: int) -> SuffixValues:
        """Seconds per minibatch of the slowest stage at least, with memory for N_m, every latency and link left out."""
        each = self.tables.choices.local_step is LocalStep.MINIBATCH

        def terms(kind: int, num_stages: int) -> Terms:
            rows = self.tables.stages(kind, in_flight, num_stages)
            work_s = rows.compute_s + rows.update_s if each else rows.compute_s
            return Terms(add=np.where(np.isfinite(work_s), 0.0, np.inf), floor=work_s)

        return SuffixValues(self.lattice, terms, np.zeros_like(self.kinds.transfer_s))

    def least_load(self, setting: Setting, period_s: float, prices: Prices) -> SuffixValues:
        """The least priced seconds for which messages of workers whose stages keep a period occupy links."""
        fast = _FastTerms(self, setting, period_s)
        boundary = sum(price * self.boundary_load_s(resource) for resource, price in prices) * setting.wave
        links = np.where(np.isfinite(self._links(setting, period_s)), boundary, np.inf)

        def terms(kind: int, num_stages: int) -> Terms:
            return Terms(add=np.where(np.isfinite(fast.of(kind, num_stages).add), 0.0, np.inf))

        return SuffixValues(self.lattice, terms, links)

    def _links(self, setting: Setting, period_s: float) -> Floats:
        """Both messages of a boundary; infinite if the queue for them is longer than the period."""
        transfer_s = self.kinds.transfer_s
        queue_s = setting.wave * np.where(self.kinds.one_queue[:, :, None], 2, 1) * transfer_s
        return np.where(queue_s <= period_s * (1 + PATH_SUM), 2 * transfer_s, np.inf)


@dataclass(frozen=True, slots=True)
class _FastTerms:
    """Terms of :meth:`Chains.fastest`."""

    chains: Chains
    setting: Setting
    period_s: float

    def of(self, kind: int, num_stages: int) -> Terms:
        tables, setting, period_s = self.chains.tables, self.setting, self.period_s
        rows, flushes = tables.stages(kind, setting.in_flight, num_stages), tables.choices.local_step is LocalStep.WAVE
        distance, compute_s = tables.choices.clock_distance, setting.wave * rows.compute_s
        steps = (0 if setting.relaxed else 1) if flushes else setting.wave
        fits = compute_s + steps * rows.update_s <= period_s * (1 + PATH_SUM)
        add = np.where(fits, rows.compute_s, np.inf)
        if setting.relaxed:
            return Terms(add=add)
        if flushes:
            step_s = rows.update_s if distance == 0 else np.zeros_like(rows.update_s)
            slack = step_s - period_s
        else:
            step_s = rows.update_s
            slack = step_s - tables.depth(setting.in_flight, num_stages) * period_s / setting.wave
        if not setting.alone:
            slack = np.maximum(slack, step_s + self.chains.exchange_s(kind) - (distance + 1) * period_s)
        return Terms(add=add, floor=compute_s if flushes else None, slack=slack)


def patterns_of(values: list[Floats], lattice: Lattice) -> list[tuple[Counts, float]]:
    """The patterns with finite values, the smallest first."""
    return [
        (tuple(lattice.levels[number][row].tolist()), float(level[row]))
        for number, level in enumerate(values)
        for row in np.flatnonzero(np.isfinite(level)).tolist()
    ]
