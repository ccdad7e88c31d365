"""A bound on one variant by branch and bound, with labels on (node, hosts opened).

Stronger than the linear relaxation where the bottleneck decides, since no slower stage is mixed in.
The plans of a node are the paths through a network, without positions at first. Its bound is raised
by bisection over T, with :mod:`stagecut.planner.solvers.exact.questions`. Where these do not rule all plans out, the
node branches: on the number of stages, into a network with positions, and on single stages. The node with the lowest
bound is always next.
"""

import math
from collections.abc import Iterator

import numpy as np

from stagecut.planner.core.messages.errors import StoppedError
from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.tolerances import MIP_BOUND
from stagecut.planner.network.labels.enumeration import one_by_one
from stagecut.planner.network.rows import Rows
from stagecut.planner.network.stage_network import ARC_BYTES, with_depths, with_positions
from stagecut.planner.solvers.exact.agenda import Outcome, limit_of
from stagecut.planner.solvers.exact.mip_rounds import ProgramPart
from stagecut.planner.solvers.exact.path_trials import AT_ONCE, num_at_once
from stagecut.planner.solvers.exact.questions import Questions, lengths_of, room_bytes
from stagecut.planner.solvers.exact.stage_splits import halves
from stagecut.planner.solvers.search.search import Search

# Half or twice each of the next two changed no plan and no bound on vgg16 and resnet50 on mixed-server-8 and gpt2-345m
# on dgx-a100-16.
PRECISION, COARSE_PRECISION = 1e-4, 1e-3
"""Relative width of the interval at which bisection stops, with and without positions."""
WORTH_BISECTING = 0.25
"""Nor is the interval divided further once it is no wider than this share of what is open between bound and limit."""
MANY_ARCS = 1_000_000
"""A network with positions is built once it has no more arcs than this, if there is room, or all plans have one length;
with three million nothing was faster on llama3-70b on 192 and 320 devices or gpt3-175b on 4,096."""

PROGRAM_ARCS, PROGRAM_ARCS_WITHOUT_LABELS = 0, 1_000
"""A node with no more arcs than this is tried as a MIP before it branches on stages. With labels branching was never
slower; what labels and MIPs close alone and together: docs/solver.md, measured by `benchmarks.contributions`."""
WORTH_DEEPENING = 0.02
"""If labels find paths that far below the limit, as a share of it, the plans up to there come first; docs/decisions.md
tells what other shares and none at all did."""
WORTH_A_THREAD = 150
"""Fewer arcs than this keep the interpreter busier than the compiled loops, which run beside it: with 500 gpt2-345m on
96 titan-rtx took 57 s in place of 46, with 50 it took 53."""


class Node:
    """Some of the plans: none is below `bound_s`, and at the upper end of the interval labels find a path.

    Plans that take longer than `ceiling_s` are those of another part.
    """

    is_stuck = False

    def __init__(
        self,
        rows: Rows,
        bound_s: float,
        *,
        prices: Floats,
        divided: bool = False,
        just_positioned: bool = False,
        before: Questions | None = None,
        ceiling_s: float = math.inf,
    ) -> None:
        self.bound_s = bound_s
        self._ceiling_s = ceiling_s
        self.rows = rows
        """Rows over the arcs that plans below the latest limit may use."""
        self._divided = divided  # whether plans with, or without, some stage were left out
        self._just_positioned = just_positioned  # whether the network was built with positions just now
        self._is_first = before is None or just_positioned  # of its variant, or of its variant with positions
        self._high_s = math.inf
        self._path: Ints | None = None
        self._paths: Ints | None = None  # all that are left, if these are few
        self._questions = Questions(prices, before=before, counts_arcs=just_positioned)
        # Rows over the arcs left below the upper end, and the numbers of these arcs in `rows`.
        self._inner, self._numbers = rows, np.arange(len(rows.network.arcs))
        self._may_be_a_program = True

    @property
    def is_small(self) -> bool:
        """Whether a step is too little work for another thread: paths to simulate are enough."""
        return self._paths is None and self.num_arcs < WORTH_A_THREAD

    @property
    def num_arcs(self) -> int:
        """Arcs of the network."""
        return len(self.rows.network.arcs)

    def step(self, search: Search) -> Outcome:
        """Ask the labels once, and branch if that has little left to gain; or simulate what is left."""
        return self._ask(search) if self._paths is None else self._some_tried(search, self._paths)

    def _ask(self, search: Search) -> Outcome:
        self.bisect(search, self._limit_of(search))
        limit_s = self._limit_of(search)
        if self.bound_s >= limit_s:
            return Outcome((), self._proven(self.bound_s))
        if self._paths is not None:
            return self._some_tried(search, self._paths) if len(self._paths) <= AT_ONCE else Outcome((self,))
        return self._branch(search, limit_s) if self.ready_to_branch(limit_s) else Outcome((self,))

    def _branch(self, search: Search, limit_s: float) -> Outcome:
        """Smaller parts with the same plans, or other ways to rule them out."""
        if self.is_far_below(limit_s):
            return Outcome((self.lower_part(limit_s), self))
        if self._suits_a_program(search):
            self._may_be_a_program = False
            return Outcome((ProgramPart(self.rows, self),))
        with search.step("branching"):
            children = tuple(self.children(search, limit_s))
        if len(children) == 1 and children[0]._just_positioned:
            # Arc fixing leaves little of a network that is large with positions, which need not wait until then.
            return children[0].step(search)
        return Outcome(children, self._proven(limit_s))

    def _some_tried(self, search: Search, paths: Ints) -> Outcome:
        """Simulate the plans of some of the paths that are left."""
        if len(paths):
            (first,) = one_by_one(paths[:1])
            at_once = num_at_once(self.rows.network, first)
            some = one_by_one(paths[:at_once])
            self._questions.trials.several(search, self.rows.network, some, latest_s=limit_of(search))
            self._paths = paths = paths[at_once:]
        return Outcome((self,)) if len(paths) else Outcome((), self._proven(self._limit_of(search)))

    def _limit_of(self, search: Search) -> float:
        """Plans whose rows reach this are of no interest here."""
        return min(limit_of(search), self._ceiling_s)

    def _proven(self, bound_s: float) -> float:
        """A bound on plans that are in no part, if those of this node in none are no faster than `bound_s`.

        From the ceiling on all plans are in another part.
        """
        return bound_s if bound_s < self._ceiling_s else math.inf

    def is_far_below(self, limit_s: float) -> bool:
        """Whether the least rows are so far below the limit that few of the plans below it decide the bound."""
        is_far = limit_s - self._high_s > WORTH_DEEPENING * limit_s
        return is_far and self.narrow(limit_s) and self.rows.network.has_positions

    def lower_part(self, limit_s: float) -> "Node":
        """The plans up to the upper end of the interval; this node keeps the others below the limit."""
        lower = self._child(self._inner, divided=self._divided, ceiling_s=self._high_s)
        self.bound_s, self._high_s = self._high_s, limit_s
        self._inner, self._numbers = self.rows, np.arange(self.num_arcs)
        return lower

    def narrow(self, limit_s: float) -> bool:
        """Whether bisection has little left to gain compared with branching."""
        precision = PRECISION if self.rows.network.has_positions else COARSE_PRECISION
        narrow_s = max(precision * self._high_s, WORTH_BISECTING * (limit_s - self.bound_s))
        return self._path is not None and self._high_s - self.bound_s <= narrow_s

    @property
    def is_single(self) -> bool:
        """Whether the node can only branch on a stage: positions are known, and there is one number of stages."""
        return self.rows.network.has_positions and len(lengths_of(self.rows.network)) <= 1

    def ready_to_branch(self, limit_s: float) -> bool:
        """Whether bisection is over; in a later part whose plans differ in length, one path found is enough."""
        by_length = not self.is_single and not self._is_first
        return self.narrow(limit_s) or (self._path is not None and by_length)

    def bisect(self, search: Search, limit_s: float) -> None:
        """Ask once more: at the limit until a path is found, then in the middle."""
        attempt_s = min(limit_s, (self.bound_s + self._high_s) / 2)
        search.count("decisions")
        try:
            left = self._questions.below(search, self._inner, attempt_s, thorough=attempt_s == limit_s)
        except StoppedError:
            return
        if left is None:
            self.bound_s = attempt_s
            return
        numbers = self._numbers[left.numbers]
        if attempt_s == limit_s:
            self.rows, numbers, self._paths = left.rows, np.arange(len(numbers)), left.paths
        self._inner, self._numbers = left.rows, numbers
        self._high_s, self._path = attempt_s, numbers[left.path]
        self._questions.trials.one(search, self.rows.network, self._path, moves_layers=not self._divided)

    def children(self, search: Search, limit_s: float) -> Iterator["Node"]:
        """Nodes that together hold the same plans below the limit, except those simulated."""
        if self.is_single:
            return self._split_on_stages(search)
        if self.rows.network.has_positions:
            return self._split_by_length()
        return self._with_positions_or_by_length(search, limit_s)

    def _with_positions_or_by_length(self, search: Search, limit_s: float) -> Iterator["Node"]:
        """The network with positions if that is small enough, else plans of fewer and of more stages."""
        rows, arcs = self.rows, self.rows.network.arcs
        first = arcs.tail == 0
        shortest, longest = int(arcs.least_position[first].min()), int(arcs.largest_position[first].max())
        most_arcs = min(MANY_ARCS, room_bytes(search) / ARC_BYTES)
        if shortest == longest or rows.network.num_positions <= most_arcs:
            search.count("arcs without positions, after labels", len(rows.network.arcs))
            with search.step("positions"):
                finer = rows.rebuilt(with_positions(rows.network, longest_s=limit_s))
            search.count("arcs with positions", len(finer.network.arcs))
            if len(finer.network.arcs):
                yield self._child(finer, just_positioned=True)
            return
        middle = (shortest + longest) // 2
        for lengths in ((shortest, middle), (middle + 1, longest)):
            network, _ = with_depths(rows.network.of_lengths(*lengths), longest_s=limit_s)
            if len(network.arcs):
                yield self._child(rows.rebuilt(network))

    def _split_by_length(self) -> Iterator["Node"]:
        arcs = self.rows.network.arcs
        lengths = lengths_of(self.rows.network)
        middle = lengths[len(lengths) // 2]
        for chosen in (arcs.least_position < middle, arcs.least_position >= middle):
            yield from self._restricted((arcs.tail != 0) | chosen, divided=self._divided)

    def _split_on_stages(self, search: Search) -> Iterator["Node"]:
        """Plans on either side of a division; none once the path is the only plan."""
        assert self._path is not None
        search.count("splits")
        for chosen in halves(self.rows, self._path) or ():
            yield from self._restricted(chosen, divided=True)

    def _restricted(self, chosen: Bools, *, divided: bool) -> Iterator["Node"]:
        network, kept = self.rows.network.restricted(chosen)
        if len(kept):
            yield self._child(self.rows.restricted(network, kept), divided=divided)

    def _suits_a_program(self, search: Search) -> bool:
        """Whether a MIP is tried before the node is divided."""
        # A bound that rests on HiGHS cannot close smaller gaps.
        is_safe = search.options.gap >= 10 * MIP_BOUND
        most_arcs = PROGRAM_ARCS if self._questions.has_labels else PROGRAM_ARCS_WITHOUT_LABELS
        return self._may_be_a_program and is_safe and self.is_single and self.num_arcs <= most_arcs

    def _child(
        self, rows: Rows, *, divided: bool = False, just_positioned: bool = False, ceiling_s: float = math.inf
    ) -> "Node":
        return Node(
            rows,
            self.bound_s,
            prices=self._questions.prices,
            divided=divided,
            just_positioned=just_positioned,
            before=self._questions,
            ceiling_s=min(self._ceiling_s, ceiling_s),
        )
