"""Decides whether any plan of one variant keeps all its rows at or below T.

The method is to shrink the bottleneck t. Fill rows ask that total + X <= T for every stage, with
X = (M - 1)(F + B) - (k - 1) F; let f(t) be the least total over paths whose stages have X <= t and
meet the other rows in time for T. A plan below T has total >= f(t), hence X <= T - f(t) =: t';
repeating with t' until the path found meets its own limit, or none is left, decides the question.
Queue rows ask the same of Z, what a stage takes up to its last forward, with the least way home in
place of the least total (docs/bounds.md, "Behind the slowest loop").

Busy rows limit the round trip before a stage, so the least round trip per label dominates. Sync
rows limit the forward part before it. The further rows only sharpen the limits: a drain row limits
the forward part before a stage plus the least round trip from there on, a link row is a bottleneck
of its transfer, late rows limit either part plus the largest loop so far, and a flush makes
X = (M - 1)(F + B) under GPipe.
"""

import math

import numpy as np

from stagecut.planner.core.messages.errors import StoppedError
from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.tolerances import LABEL_SUM
from stagecut.planner.network.labels.back_and_forth import BackAndForth, Cheapest, Rival
from stagecut.planner.network.labels.counted_paths import CountedPaths
from stagecut.planner.network.labels.criteria import NO_QUEUE, NO_TURNS, Criteria, Limits, QueueCriteria, Turns
from stagecut.planner.network.labels.label_sets import Reached
from stagecut.planner.network.labels.pareto_paths import pareto_path
from stagecut.planner.network.link_loads import NO_LOADS
from stagecut.planner.network.rows import Rows
from stagecut.planner.solvers.exact.path_times import can_time
from stagecut.planner.solvers.search.options import StopCheck

FLOOR_PRECISION = 1e-3
"""Width at which the search for the least bottleneck ends, as a share of T; half and twice as much changed no plan and
no bound on vgg16 and resnet50 on mixed-server-8."""
WORTH_A_SWEEP = 0.9
"""Sweeps go on while each takes fewer labels further than this share of the one before. With one sweep back only, 5.9 %
of resnet152 on 88 devices (drawn problem 45) were open after 25 s in place of 3.9."""

WORTH_DIVIDING = 50_000
"""Ways to and from counted nodes are divided if there are no more of these, and sweeps take no more labels further than
this; without a limit 151 questions on `servers-04` were asked within a minute in place of 213."""


WIDTHS, MOST_LABELS, MOST_EXTENSIONS = (8, 64), 30_000, 20_000
"""How many labels a node has where one is not enough, one number after the other, and how many there are in all; they
are tried where arcs take no more labels further than the last number. docs/decisions.md tells what more did."""


class Decision:
    """The question for one set of rows, to be asked for several T.

    Parameters
    ----------
    rows
        With the shared families only, the answer is exact. Further families are used as far as
        single arcs show them: a path found may still break one of them, but where none is found
        there is none.
    stop
        Whether to give up.
    room_bytes
        What the labels may take.
    rival
        Sets the windows of the first labels; None: there are none better than guessed.
    prices
        Of hosts, see :class:`~stagecut.planner.network.labels.counted_paths.CountedPaths`.
    last_tried
        The attribute of the last decision about these paths and perhaps more.

    Raises
    ------
    TooManyLabelsError
        If there is no room for nodes and count states.
    """

    def __init__(
        self,
        rows: Rows,
        *,
        stop: StopCheck = lambda: False,
        room_bytes: float = math.inf,
        rival: Rival | None = None,
        prices: Floats | None = None,
        last_tried: float = math.inf,
    ) -> None:
        self.rival = rival
        """Of the path found last, once there is one."""
        self.last_tried = last_tried
        """How many labels arcs took further where several a node were tried; with half as many they are again."""
        self.num_extensions = 0
        """How many labels arcs took further in the largest sweep of the last question."""
        self._rows, self._stop = rows, stop
        self._ways: BackAndForth | None = None
        self._exact = "drain" not in rows.costs_s
        self._bottleneck = rows.bottleneck
        self._paths = CountedPaths(rows.network, room_bytes=room_bytes, may_relax=not self._exact, prices=prices)

    def path_below(self, limit_s: float) -> Cheapest | None:
        """Such a path, with the arcs that plans below the limit may use; None if there is none.

        Raises
        ------
        TooManyLabelsError
            If labels take too much memory, or the question needs exact Pareto sets and they grow too large.
        StoppedError
            If `stop` says so before there is an answer.
        """
        criteria = self._criteria(limit_s)
        return self._shared_below(limit_s, criteria) if self._exact else self._all_below(limit_s, criteria)

    def _all_below(self, limit_s: float, criteria: Criteria) -> Cheapest | None:
        """With all rows: sweeps either way, until those from the source have little less to do."""
        loops_s, fewest, self.num_extensions = self._loops_s(criteria), math.inf, 0
        self._ways = ways = self._paths.between(criteria, np.ones(len(loops_s), dtype=bool))
        while ways is not None:
            self._give_up_on_time()
            if (found := ways.from_source(self.rival)) is None:
                break
            self.rival = Rival.of(found.path, criteria)
            if not ways.is_divided:
                self.num_extensions = max(self.num_extensions, ways.num_extensions)
            # t' = T - f(t): smaller each time, since f(t) does not fall as t shrinks.
            bottleneck_s, loop_s = limit_s - found.round_trip_s, criteria.limit - found.home_s
            is_below = self.bottleneck_of(found.path) <= bottleneck_s and loops_s[found.path].max() <= loop_s
            if is_below and ways.num_extensions > WORTH_A_SWEEP * fewest:
                if not self._is_worth_dividing(ways):
                    return self._with_several_labels(found)
                ways.divide()
                fewest = math.inf
            else:
                fewest = min(fewest, ways.num_extensions)
            ways.leave_out((self._bottleneck <= bottleneck_s) & (loops_s <= loop_s))
            ways.from_sink()
        return None

    def _with_several_labels(self, found: Cheapest) -> Cheapest | None:
        """The answer with several labels a node, if that soon shows: a path with its own lengths, or none at all."""
        if self._rows.network.has_positions and self.num_extensions <= min(MOST_EXTENSIONS, self.last_tried / 2):
            self.last_tried = self.num_extensions
            for width in WIDTHS:
                reached = self.reached(width)
                if reached is None:
                    break
                if not reached.any:
                    return None
                if reached.paths:
                    return found._replace(path=reached.paths[0])
        return found

    def _is_worth_dividing(self, ways: BackAndForth) -> bool:
        """Whether lengths of ways in several parts are likely to show more."""
        is_small = max(ways.num_extensions, ways.num_nodes) <= WORTH_DIVIDING and self._paths.has_room_for_parts(ways)
        return self._rows.network.has_positions and is_small and not ways.is_divided

    def _shared_below(self, limit_s: float, criteria: Criteria) -> Cheapest | None:
        """With shared rows only, where labels with one least length each decide, or Pareto sets."""
        bottleneck_s, pareto = math.inf, False
        usable = np.ones(len(self._bottleneck), dtype=bool)
        while True:
            self._give_up_on_time()
            usable &= self._bottleneck <= bottleneck_s
            found = self._pareto(criteria, usable) if pareto else self._paths.cheapest(criteria, usable)
            if found is None:
                return None
            usable, bottleneck_s = found.possible, limit_s - found.round_trip_s
            if self.bottleneck_of(found.path) > bottleneck_s:
                continue
            if pareto or self._is_in_time(found.path, criteria):
                return found
            pareto = True

    def paths_below(self, *, most_steps: int, most_paths: int) -> Ints | None:
        """All paths that the last question left; None if that takes more steps, or more paths are found.

        Their arcs have shape (paths, arcs), `NONE` after the last one. No plan that takes less than the limit is among
        the others.
        """
        assert self._ways is not None
        # A transfer before each stage, and a layer in each of them.
        most_arcs, plays = 2 * self._rows.network.num_layers, can_time(self._rows.network)
        return self._ways.paths(most_steps=most_steps, most_paths=most_paths, most_arcs=most_arcs, plays=plays)

    def reached(self, width: int) -> Reached | None:
        """What reaches the sink if each counted node has up to `width` labels; None if these are too many in all."""
        assert self._ways is not None
        most_labels = min(MOST_LABELS, self._paths.room_for_sets(self._ways))
        most_arcs = 2 * self._rows.network.num_layers
        return self._ways.reached(
            width=width, most_labels=most_labels, most_arcs=most_arcs, plays=can_time(self._rows.network)
        )

    def beam(self, width: int) -> list[Ints]:
        """Some of the paths that the last question left; none if the beam finds none."""
        assert self._ways is not None
        return self._ways.beam(width)

    def _loops_s(self, criteria: Criteria) -> Floats:
        """For each stage, the least from the start of its first forward to the start of its last one; shape (A,).

        Then the last micro-batch goes on to the last stage, whose end the whole way home follows.
        """
        rows, graph = self._rows, self._rows.network.graph
        loops_s: Floats = criteria.loop + rows.round_trip + graph.to_sink(rows.round_trip)[graph.head]
        return loops_s

    def _is_in_time(self, path: Ints, criteria: Criteria) -> bool:
        forward = self._rows.forward[path]
        return bool((np.cumsum(forward) - forward <= criteria.forward_limits.alone[path]).all())

    def bottleneck_floor(self, limit_s: float, low_s: float, high_s: float) -> float:
        """A value that the bottleneck of every plan below the limit reaches.

        It is found by bisection between such a value, `low_s`, and the bottleneck of a path below the limit, `high_s`.

        Raises
        ------
        StoppedError
            If `stop` says so before there is an answer.
        """
        criteria = self._criteria(limit_s)
        while high_s - low_s > FLOOR_PRECISION * limit_s:
            self._give_up_on_time()
            middle_s = (low_s + high_s) / 2
            ways = self._paths.between(criteria, self._bottleneck <= middle_s)
            if ways is None or (found := ways.from_source(self.rival)) is None:
                low_s = middle_s
            else:
                high_s = self.bottleneck_of(found.path)
        return low_s

    def bottleneck_of(self, path: Ints) -> float:
        """The largest term that a row of the path adds to the round trip."""
        return float(self._bottleneck[path].max())

    def _give_up_on_time(self) -> None:
        if self._stop():
            raise StoppedError

    def _pareto(self, criteria: Criteria, usable: Bools) -> Cheapest | None:
        path = pareto_path(self._rows.network, criteria, usable)
        if path is None:
            return None
        round_trip_s = float(self._rows.round_trip[path].sum())
        return Cheapest(path, usable, round_trip_s, round_trip_s)

    def _criteria(self, limit_s: float) -> Criteria:
        """Lengths and limits under which every row of an arc, with what comes before and after, meets the limit."""
        rows, costs_s, most_s = self._rows, self._rows.costs_s, limit_s * (1 + LABEL_SUM)
        arcs, micro_batches = rows.network.arcs, rows.network.variant.num_microbatches
        never = np.full(len(arcs), -np.inf)
        # An exact answer must not accept a path above the limit; a proof must not lose one to rounding.
        first_s = limit_s if self._exact else most_s
        loop_s = turn_s = never
        # Late rows: a stage that waits for the loop (M - k - 1)(F + B) of a later one takes F + k B, and g_0 or g, from
        # there on. The loop of the first stage counts less g_0, which its way on includes.
        first_tail_s = np.where(arcs.start == 0, arcs.tail_s, 0.0)
        if not self._exact:
            largest_depth = rows.network.largest_depth
            loop_s = (micro_batches - largest_depth - 1) * (arcs.forward_s + arcs.backward_s) - first_tail_s
            loop_s = np.where(arcs.is_stage & (micro_batches > largest_depth), loop_s, never)
            turn_s = np.where(arcs.is_stage, arcs.forward_s + rows.network.least_depth * arcs.backward_s, never)
        return Criteria(
            round_trip=rows.round_trip,
            forward=rows.forward,
            loop=loop_s,
            round_trip_limits=Limits(
                first_s - costs_s["busy"], most_s - self._bottleneck, most_s - (turn_s + first_tail_s)
            ),
            forward_limits=Limits(
                np.where(arcs.is_stage, first_s - costs_s["sync"], np.inf),
                most_s - costs_s.get("drain", never),
                most_s - (turn_s + arcs.tail_s),
            ),
            queue=_queue(rows, most_s),
            loads=rows.loads or NO_LOADS,
            turns=NO_TURNS if self._exact else _turns(rows, most_s),
            limit=most_s,
        )


def _queue(rows: Rows, limit_s: float) -> QueueCriteria:
    queues = rows.queues
    if queues is None:
        return NO_QUEUE
    latest = (limit_s - after_s for after_s in (queues.after_busy, queues.after_drain, queues.after_late))
    return QueueCriteria(queues, Limits(*latest))


MOST_TURNS = 4
"""Stages at the end of a pipeline, the last one included, where first backwards are tried to turn."""


def _turns(rows: Rows, limit_s: float) -> Turns:
    network, arcs = rows.network, rows.network.arcs
    micro_batches, is_stage = network.variant.num_microbatches, arcs.is_stage
    depths = np.unique(network.depths[1 : MOST_TURNS + 1])
    depth_step = int(np.diff(network.depths[1:3]).sum())
    least_depth, largest_depth = network.least_depth, network.largest_depth
    left = micro_batches - largest_depth - 1
    has_room = micro_batches >= 2 * largest_depth + 1
    return Turns(
        is_stage=is_stage,
        forward=np.where(is_stage, arcs.forward_s, arcs.transfer_s),
        backward=np.where(is_stage, arcs.backward_s, arcs.transfer_s),
        first_less=arcs.forward_s - arcs.first_s,
        first_tail=np.where(arcs.start == 0, arcs.tail_s, 0.0),
        least_depth=least_depth,
        largest_depth=largest_depth,
        own_pairs=left // (1 + depth_step),
        pairs=(left - depth_step) // (1 + depth_step),
        windows=is_stage & has_room,
        latest_fill=limit_s - rows.fill,
        depths=depths,
        passages=_passages(least_depth[is_stage]),
        num_microbatches=micro_batches,
        depth_step=depth_step,
    )


def _passages(depths: Ints) -> Ints:
    """Two of the deeper ones. The deepest may be the number of micro-batches, at which a stage has no loops."""
    deepest_first = np.unique(depths)[::-1]
    chosen: Ints = deepest_first[np.minimum((3, 1), len(deepest_first) - 1)]
    return chosen
