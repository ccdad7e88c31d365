"""What the rows say of one worker whose stages are given: the same as :meth:`Chains.fastest`, by hand."""

import math
from collections.abc import Sequence

from stagecut.planner.core.numerics.tolerances import ALMOST_ZERO, PATH_SUM
from stagecut.planner.workers.rows.chain_program import Chain
from stagecut.planner.workers.rows.chains import Chains
from stagecut.planner.workers.rows.row_tables import DEEPEST, Option, Setting

Depths = tuple[int, ...]
"""How many minibatches each stage holds before its first backward."""
PERIOD_STEP = 1e-4
"""Relative precision of a least period; the lower end of the bracket is what counts as proven."""


class WorkerRows:
    """The rows of a worker alone.

    Parameters
    ----------
    chains, setting, chain
        Whose stages they are.
    """

    def __init__(self, chains: Chains, setting: Setting, chain: Chain) -> None:
        tables, kinds = chains.tables, chains.kinds
        stages = list(zip(chain.kinds, chain.starts, chain.stops, strict=True))
        pairs = list(zip(chain.kinds, chain.kinds[1:], chain.stops, strict=False))
        self._setting, self._distance = setting, tables.choices.clock_distance
        self.flushes = chains.flushes
        """Whether workers make one step a wave."""
        self.options = [tables.options(kind, setting.in_flight, start, stop) for kind, start, stop in stages]
        """The modes in which each stage fits."""
        self._exchange_s = [
            float(chains.exchange_s(kind, setting.num_workers)[start, stop]) for kind, start, stop in stages
        ]
        transfer_s = [float(kinds.transfer_s[first, second, stop]) for first, second, stop in pairs]
        self._behind_s = [*(2 * seconds for seconds in transfer_s), 0.0]
        """Both messages over the boundary behind each stage."""
        shared = [2 if kinds.one_queue[first, second] else 1 for first, second, _ in pairs]
        self._queue_s = max((a * b for a, b in zip(transfer_s, shared, strict=True)), default=0.0)

    def option(self, index: int, depth: int) -> Option | None:
        """The mode of a stage that holds so many minibatches: the first that it has memory for."""
        return next((own for own in self.options[index] if depth <= own.most), None)

    def least_depths(self, period_s: float, given: Sequence[int] | None = None) -> Depths | None:
        """The least depths with which the rows hold, or those given if they do; None if the rows do not hold."""
        tau = max(period_s / self._setting.wave, ALMOST_ZERO)
        if self._queue_s > tau * (1 + PATH_SUM):
            return None
        round_s = cycle_s = 0.0
        depths: list[int] = []
        for index in reversed(range(len(self.options))):
            behind_s = self._behind_s[index] + self._setting.patience * tau * (index + 1 < len(self.options))
            round_s, cycle_s = round_s + behind_s, cycle_s + behind_s
            found = self._held(index, tau, cycle_s, None if given is None else given[index])
            if found is None:
                return None
            depth, own = found
            round_s += own.work_s
            if self.flushes:
                round_s = max(round_s, self._setting.wave * own.work_s)
            if round_s > self._latest_s(index, own, period_s):
                return None
            cycle_s = max(own.work_s + cycle_s, own.work_s + (depth - 1) * tau)
            depths.insert(0, depth)
        return tuple(depths)

    @property
    def period_s(self) -> float:
        """The least period with which the rows hold, rounded up; infinite if some stage does not fit."""
        if not all(self.options):
            return math.inf
        low_s = high_s = self._setting.wave * max(self._queue_s, *(self._busy_s(own[0]) for own in self.options))
        while self.least_depths(high_s) is None:
            low_s, high_s = high_s, 2 * high_s if high_s > 0 else 1e-9
        while high_s - low_s > PERIOD_STEP * high_s:
            middle_s = (low_s + high_s) / 2
            low_s, high_s = (middle_s, high_s) if self.least_depths(middle_s) is None else (low_s, middle_s)
        return high_s

    def _busy_s(self, own: Option) -> float:
        """What a minibatch keeps a stage busy for."""
        return own.work_s + own.update_s / (self._setting.wave if self.flushes else 1)

    def _held(self, index: int, tau: float, behind_s: float, given: int | None) -> tuple[int, Option] | None:
        """The depth of a stage, and its mode."""
        for own in self.options[index]:
            least = 1
            if not self.flushes:
                periods = (own.work_s + behind_s + own.update_s) / tau * (1 - PATH_SUM) - PATH_SUM
                least = max(1, math.ceil(min(periods, DEEPEST + 1)))
            depth = least if given is None else given
            keeps = least <= depth <= min(own.most, self._setting.deepest)
            if keeps and self._busy_s(own) <= tau * (1 + PATH_SUM):
                return depth, own
            if given is not None and given <= own.most:
                return None
        return None

    def _latest_s(self, index: int, own: Option, period_s: float) -> float:
        """What is left for the round trip from a stage, of a minibatch or of a wave."""
        latest_s = period_s if self.flushes else math.inf
        if self._setting.num_workers > 1:
            latest_s = min(latest_s, (self._distance + 1) * period_s - self._exchange_s[index])
        return latest_s * (1 + PATH_SUM) - (own.update_s if not self.flushes or self._distance == 0 else 0.0)
