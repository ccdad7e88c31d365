"""Decides whether any plan of one variant keeps all its rows at or below T.

The way is shrinking the bottleneck t. Fill rows ask that total + X <= T for every stage, with
X = (M - 1)(F + B) - (k - 1) F; let f(t) be the least total over paths whose stages have X <= t and
meet the other rows in time for T. A plan below T has total >= f(t), hence X <= T - f(t) =: t';
repeating with t' until the path found meets its own limit, or none is left, decides the question.

Busy rows limit the round trip before a stage, so the least round trip per label dominates. Sync
rows limit the forward part before it. The further rows only sharpen the limits: a drain row limits
the forward part before a stage plus the least round trip from there on, a link row is a bottleneck
of its transfer, late rows limit either part plus the largest loop so far, and a flush makes
X = (M - 1)(F + B) under GPipe.
"""

import math
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.arrays import Bools, Floats, Ints
from stagecut.planner.network.counted_paths import CountedPaths, Criteria, Line
from stagecut.planner.network.pareto_paths import pareto_path
from stagecut.planner.network.pruning import cover_of, starting_of
from stagecut.planner.network.queues import Queues
from stagecut.planner.network.rows import Rows
from stagecut.planner.solvers.search.options import StopCheck

TOLERANCE = 1e-12
"""Sums from the two ends of a path differ by their rounding."""
FLOOR_PRECISION = 1e-3
"""Width at which the search for the least bottleneck ends, as a share of T."""


class StoppedError(Exception):
    """The question was stopped before it was answered."""


class Decision:
    """The question for one set of rows, to be asked for several T.

    Parameters
    ----------
    rows
        With the shared families only, the answer is exact. With further families, they are used
        as far as single arcs show them: a path found may still break one of them, but where none
        is found there is none.
    stop
        Whether to give up.
    """

    def __init__(self, rows: Rows, *, stop: StopCheck = lambda: False) -> None:
        self.rows, self._stop = rows, stop
        families = {family.name: family for family in rows.families}
        self._busy, self._sync = cover_of(families["busy"]), cover_of(families["sync"])
        self._bottleneck = cover_of(families["fill"])
        self._drain = cover_of(families["drain"]) if "drain" in families else None
        self._exact = self._drain is None
        self._last = _last_forwards(rows) if "drain" in families else None
        if "link" in families:
            self._bottleneck = np.maximum(self._bottleneck, starting_of(families["link"]))
        if "flush forward" in families:
            both = cover_of(families["flush forward"]) + cover_of(families["flush backward"])
            self._bottleneck = np.maximum(self._bottleneck, both)
        self._paths = CountedPaths(rows.network)

    def path_below(self, limit_s: float) -> Ints | None:
        """Such a path, None if there is none.

        Raises
        ------
        TooManyLabelsError
            If the question needs exact Pareto sets and they outgrow what is sensible.
        StoppedError
            If `stop` says so before there is an answer.
        """
        criteria = self._criteria(limit_s)
        bottleneck_s, pareto = math.inf, False
        while True:
            self._check()
            usable = self._bottleneck <= bottleneck_s
            path = self._cheapest(criteria, usable, pareto=pareto)
            if path is None:
                return None
            bottleneck_s = limit_s - float(self.rows.round_trip[path].sum())
            if self._bottleneck[path].max() > bottleneck_s:
                continue
            if pareto or not self._exact or self._in_time(path, criteria):
                return path
            pareto = True

    def bottleneck_floor(self, limit_s: float, low_s: float, high_s: float) -> float:
        """A value that the bottleneck of every plan below the limit reaches, by bisection between two others.

        Parameters
        ----------
        low_s
            Such a value.
        high_s
            Bottleneck of a path below the limit.

        Raises
        ------
        StoppedError
            If `stop` says so before there is an answer.
        """
        criteria = self._criteria(limit_s)
        while high_s - low_s > FLOOR_PRECISION * limit_s:
            self._check()
            middle_s = (low_s + high_s) / 2
            path = self._paths.cheapest(criteria, self._bottleneck <= middle_s)
            if path is None:
                low_s = middle_s
            else:
                high_s = float(self._bottleneck[path].max())
        return low_s

    def bottleneck_of(self, path: Ints) -> float:
        """The largest term of a path's rows beside its round trip."""
        return float(self._bottleneck[path].max())

    def _check(self) -> None:
        if self._stop():
            raise StoppedError

    @property
    def possible(self) -> Bools:
        """Which arcs the plans below the latest limit may use, by the latest labels."""
        return self._paths.possible

    def _criteria(self, limit_s: float) -> Criteria:
        rows = self.rows
        unlimited = np.full(len(self._busy), np.inf)
        # An exact answer must not accept a path above the limit; a proof must not lose one to rounding.
        first_s = limit_s if self._exact else limit_s * (1 + TOLERANCE)
        return Criteria(
            round_trip=rows.round_trip,
            forward=rows.forward,
            latest_round_trip=first_s - self._busy,
            latest_forward=np.where(rows.network.arcs.is_stage, first_s - self._sync, np.inf),
            latest_end=limit_s * (1 + TOLERANCE) - self._bottleneck,
            latest_drain=unlimited if self._drain is None else limit_s * (1 + TOLERANCE) - self._drain,
            loop=-unlimited if self._last is None else self._last.loop,
            latest_turn=unlimited if self._last is None else limit_s * (1 + TOLERANCE) - self._last.turn,
            latest_late=unlimited if self._last is None else limit_s * (1 + TOLERANCE) - self._last.late,
            line=None if rows.queues is None else _line(rows.queues, limit_s * (1 + TOLERANCE)),
        )

    def _cheapest(self, criteria: Criteria, usable: Bools, *, pareto: bool) -> Ints | None:
        if pareto:
            return pareto_path(self.rows.network, criteria, usable)
        return self._paths.cheapest(criteria, usable)

    def _in_time(self, path: Ints, criteria: Criteria) -> bool:
        forward_before = np.cumsum(self.rows.forward[path]) - self.rows.forward[path]
        return bool((forward_before <= criteria.latest_forward[path]).all())


def _line(queues: Queues, limit_s: float) -> Line:
    return Line(
        queued=queues.queued_s,
        restarts=queues.restarts,
        latest_busy=limit_s - queues.after_busy_s,
        latest_drain=limit_s - queues.after_drain_s,
        latest_late=limit_s - queues.after_late_s,
    )


class _LastForwards(NamedTuple):
    """The late rows of :mod:`planner.simulator.bounds`, per arc."""

    loop: Floats
    """(M - k - 1)(F + B), as the stage s that is late; less g_0 on the first stage, which its way on includes."""
    turn: Floats
    """F + k B, and g_0 on the first stage, as the stage e that waits for it."""
    late: Floats
    """F + k B + g, alike."""


def _last_forwards(rows: Rows) -> _LastForwards:
    arcs, micro_batches = rows.network.arcs, rows.network.variant.num_microbatches
    loops = arcs.is_stage & (micro_batches > arcs.largest_depth)
    first_tail_s = np.where(arcs.start == 0, arcs.tail_s, 0.0)
    loop_s = (micro_batches - arcs.largest_depth - 1) * (arcs.forward_s + arcs.backward_s) - first_tail_s
    turn = np.where(arcs.is_stage, arcs.forward_s + arcs.least_depth * arcs.backward_s, -np.inf)
    return _LastForwards(
        loop=np.where(loops, loop_s, -np.inf),
        turn=turn + first_tail_s,
        late=turn + arcs.tail_s,
    )
