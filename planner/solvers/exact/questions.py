"""What labels and arc fixing leave of the paths through a network below a limit: one question, and what it takes.

Before labels are asked :mod:`stagecut.planner.solvers.exact.arc_fixing` leaves out arcs; of what
:mod:`stagecut.planner.solvers.exact.decision` leaves, all paths are listed if they are few, else some are simulated.
"""

import math
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.network.labels.back_and_forth import Cheapest, Rival
from stagecut.planner.network.labels.counted_nodes import NONE
from stagecut.planner.network.labels.counted_paths import TooManyLabelsError
from stagecut.planner.network.pruning import arc_prices
from stagecut.planner.network.rows import Rows
from stagecut.planner.network.stage_network import StageNetwork
from stagecut.planner.solvers.exact.agenda import UNDER_WAY
from stagecut.planner.solvers.exact.arc_fixing import ArcFixing
from stagecut.planner.solvers.exact.decision import Decision
from stagecut.planner.solvers.exact.path_times import can_time
from stagecut.planner.solvers.exact.path_trials import WORTH_IMPROVING, PathTrials, share_worth_trying
from stagecut.planner.solvers.search.search import Search

MANY_LABELS = 30_000
"""If arcs take more labels further than this, no floor of the bottleneck is sought, which takes some ten questions: on
resnet152 and bert-large on 88 and 212 devices (drawn problems 45 and 46) 2.9 and 1.7 % were open after 60 s with floors
up to 200,000, 1 % after 54 s with this, and 5 and 1 % without any."""

MOST_TIMED_PATHS, MOST_PATHS, MOST_STEPS = 10_000, 2_000, 30_000
"""What is left is simulated if there are no more paths than this, from their arcs, at some 40 microseconds a path, or
as plans, at ten times as much; and if they are found in no more steps than this and some for each path. With up to
10,000 plans gpt2-1.3b on 29 devices (drawn problem 27) took 9 s in place of 2, and with 50,000 timed paths vgg19 on 252
(171) 40 s in place of 30. With ten times as many steps resnet152 on 28 and 196 (168, 157) were 2.1 and 5.8 % open after
70 s of one job in place of 1.8 and 4.5, with a third 2.1 and 4.2."""

BEAM_WIDTH, MOST_OF_A_BEAM, WORTH_A_BEAM = 4, 20, 100_000
"""Where more is left, up to so many paths of a beam of this width are simulated, unless arcs take more labels further
than this; the beam takes as long as four sweeps. With ten times as many, 8.5 % of bert-large on 56 devices of four
types (drawn problem 148) were open after 60 s in place of 6.8, and no plan was better."""


class Left(NamedTuple):
    """What a question leaves of a node."""

    rows: Rows
    """Rows over the arcs that plans below the limit may use."""
    numbers: Ints
    """The numbers that these arcs had before."""
    path: Ints
    """Arcs of a path over these; where counting hosts takes too much memory it may open too many."""
    paths: Ints | None
    """Arcs of all paths below the limit, with `NONE` after the last one, if these are few."""


class Questions:
    """Questions about the plans of a node, and what they found out that holds for its children.

    Parameters
    ----------
    prices
        Of hosts, from which arc fixing starts.
    before
        Those of the parent.
    counts_arcs
        Whether to count the arcs that the first question leaves as those of a new network with positions.
    """

    def __init__(self, prices: Floats, *, before: "Questions | None" = None, counts_arcs: bool = False) -> None:
        self.trials: PathTrials = PathTrials(None if before is None else before.trials)
        """Here and on the way here."""
        self.has_labels = True
        """Whether those of the last question fit into memory."""
        self._fixing = ArcFixing(prices)
        self._counts_arcs = counts_arcs
        self._rival: Rival | None = None if before is None else before._rival
        self._last_tried: float = math.inf if before is None else before._last_tried

    @property
    def prices(self) -> Floats:
        """Of hosts, as arc fixing found them last."""
        return self._fixing.prices

    def below(self, search: Search, rows: Rows, limit_s: float, *, thorough: bool) -> Left | None:
        """What is left below a limit; None if there is no path."""
        rows, kept = self._fixed(search, rows, limit_s)
        if self._counts_arcs:
            search.count("arcs with positions, after arc fixing", len(kept))
            self._counts_arcs = False
        if len(kept) == 0:
            return None
        try:
            return self._left_by_labels(search, rows, kept, limit_s, thorough=thorough)
        except TooManyLabelsError:
            self.has_labels = False
            return self._unasked(rows, kept)

    def _unasked(self, rows: Rows, kept: Ints) -> Left:
        """All arcs, and a shortest path at the prices of hosts."""
        path = rows.network.graph.shortest_path(rows.round_trip + arc_prices(rows, self._fixing.prices))
        return Left(rows, kept, path, None)

    def _left_by_labels(self, search: Search, rows: Rows, kept: Ints, limit_s: float, *, thorough: bool) -> Left | None:
        decision, found = self._ask_labels(search, rows, limit_s)
        if found is not None and thorough and decision.num_extensions <= MANY_LABELS:
            rows, kept = self._with_floor(search, rows, kept, limit_s, found)
            if len(kept) == 0:
                return None
            decision, found = self._ask_labels(search, rows, limit_s)
        if found is None:
            return None
        share = share_worth_trying(rows.network, found.path)
        most_paths = MOST_TIMED_PATHS if can_time(rows.network) else MOST_PATHS
        # Whether there is any path at all is soon known even where not all are wanted.
        paths = self._few_paths(search, decision, math.ceil(share * most_paths) if thorough else 0)
        if paths is not None and len(paths) == 0:
            self.trials.several(search, rows.network, [found.path], latest_s=WORTH_IMPROVING * search.best_s)
            return None
        if paths is None:
            self._try_beam(search, rows.network, decision, math.ceil(share * MOST_OF_A_BEAM))
        smaller, chosen = rows.network.restricted(found.possible)
        path = np.searchsorted(chosen, found.path)
        if paths is not None:
            paths = np.where(paths == NONE, NONE, np.searchsorted(chosen, paths))
        return Left(rows.restricted(smaller, chosen), kept[chosen], path, paths)

    def _few_paths(self, search: Search, decision: Decision, most_paths: int) -> Ints | None:
        """All paths that the labels leave, if these are soon found."""
        with search.step("enumeration"):
            return decision.paths_below(most_steps=MOST_STEPS, most_paths=most_paths)

    def _try_beam(self, search: Search, network: StageNetwork, decision: Decision, most_paths: int) -> None:
        """Simulate some of the paths that the labels leave."""
        if decision.num_extensions <= WORTH_A_BEAM:
            with search.step("beam"):
                paths = decision.beam(BEAM_WIDTH)[:most_paths]
                self.trials.several(search, network, paths, latest_s=WORTH_IMPROVING * search.best_s)

    def _fixed(self, search: Search, rows: Rows, limit_s: float) -> tuple[Rows, Ints]:
        with search.step("arc fixing"):
            return self._fixing.remaining(rows, limit_s, stop=lambda: search.out_of_budget)

    def _ask_labels(self, search: Search, rows: Rows, limit_s: float) -> tuple[Decision, Cheapest | None]:
        with search.step("labels"):
            decision = self._decision(search, rows)
            found = decision.path_below(limit_s)
        self._rival, self._last_tried = decision.rival, decision.last_tried
        return decision, found

    def _decision(self, search: Search, rows: Rows) -> Decision:
        return Decision(
            rows,
            stop=lambda: search.out_of_budget,
            room_bytes=room_bytes(search),
            rival=self._rival,
            prices=self._fixing.of_hosts(rows, stop=lambda: search.out_of_budget),
            last_tried=self._last_tried,
        )

    def _with_floor(self, search: Search, rows: Rows, kept: Ints, limit_s: float, found: Cheapest) -> tuple[Rows, Ints]:
        """Less of what a question leaves, by a bottleneck that plans below the limit reach."""
        network, chosen = rows.network.restricted(found.possible)
        rows, kept, path = rows.restricted(network, chosen), kept[chosen], np.searchsorted(chosen, found.path)
        with search.step("labels"):
            decision = self._decision(search, rows)
            floor_s = decision.bottleneck_floor(limit_s, rows.floor_s, decision.bottleneck_of(path))
        rows, left = self._fixed(search, rows.with_floor(floor_s), limit_s)
        return rows, kept[left]


def room_bytes(search: Search) -> float:
    """What one question may take, since as many are asked at once as there are jobs."""
    return search.room_bytes / min(search.options.jobs, UNDER_WAY)


def lengths_of(network: StageNetwork) -> Ints:
    """Numbers of stages that plans of a network with positions have."""
    arcs = network.arcs
    lengths: Ints = np.unique(arcs.least_position[arcs.tail == 0])
    return lengths
