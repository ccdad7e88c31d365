"""Unequal micro-batches: partition, mapping and the sublot size of every process, with a proof.

A flush separates forwards from backwards, so a plan takes the makespan of its line of forwards plus that of its
backwards, and what links that several transfers share add to it. The network is that of the sublots
(:mod:`stagecut.planner.network.sized.network`). In order:

1. the stages of the best plan so far get the best sizes;
2. arcs that no plan below the limit uses are left out, first without counting hosts, then counting them;
3. labels find the fastest paths with sizes, keeping few labels at a node at first and more each time.

Labels kept completely are a proof; otherwise the least bound of those dropped is the bound.
"""

import math

from stagecut.planner.core.numerics.tolerances import LABEL_SUM
from stagecut.planner.core.problem import Variant
from stagecut.planner.network.sized.flush_problem import flush_problem
from stagecut.planner.network.sized.network import SizedNetwork, Sizing, build_sized_network, with_host_counts
from stagecut.planner.network.sized.plan import sized_plan
from stagecut.planner.network.sized.relaxation import LINES, SizedRelaxation, relax_line, through_s
from stagecut.planner.solvers.search.search import Search
from stagecut.planner.solvers.sublots.path_labels import label_paths
from stagecut.planner.sublots.labels import solve_sublots

FIRST_LABELS = 8
"""Labels kept at a node in the first round; four times as many in each further one."""
MOST_PATHS = 32
"""Paths of each round that are simulated."""
KEPT_SHARE = 0.9
"""Arc fixing is repeated while it leaves no more than this share of the arcs."""
MOST_ARCS = 4_000_000
"""Arcs of a network that counts hosts; with ten lengths of sublots its times alone take 640 MB."""


class SublotProof:
    """What is known about the plans with sublot sizes of their own on one share of the cluster.

    Attributes
    ----------
    bound_s
        No such plan is faster.
    stalled
        Whether another step would prove nothing.
    row_bound_s
        Always None: there are no bound rows here.
    """

    row_bound_s: float | None = None

    def __init__(self, search: Search, variant: Variant) -> None:
        self.variant = variant
        self.bound_s = 0.0
        self.stalled = False
        self._search, self._costs = search, search.costs.of(variant.share)
        self._network: SizedNetwork | None = None
        self._max_labels = FIRST_LABELS

    def advance(self) -> None:
        """Build the network, or look for paths with more labels than before."""
        if self.bound_s >= self._limit_s:
            return
        if self._network is None:
            self._build()
        else:
            self._label(self._network)

    @property
    def _limit_s(self) -> float:
        """Plans that take this long are of no interest."""
        return self._search.best_s * (1 - max(self._search.options.gap, LABEL_SUM))

    def _offer_sizes(self, sizing: Sizing) -> None:
        """The best sizes for the stages of the best plan so far."""
        search, plan = self._search, self._search.best_plan
        if plan is None or plan.share != self.variant.share or plan.chunks > 1 or plan.is_unequal:
            return
        flush = flush_problem(self._costs, self.variant, plan, sizing.sizes)
        if flush is not None:
            with search.step("labels"):
                best = solve_sublots(flush.sublots, gap=search.options.gap, stop=lambda: search.out_of_budget)
            search.offer([flush.sized(best.sizes)])

    def _build(self) -> None:
        """The network of what may be faster than the best plan, host by host."""
        search, num_samples = self._search, self.variant.micro_batch
        sizing = Sizing(num_samples=num_samples, sizes=search.problem.job.sublot_sizes(num_samples))
        self._offer_sizes(sizing)
        with search.step("network"):
            network = build_sized_network(self._costs, sizing, longest_s=search.best_s)
        network, _ = self._fixed(network)
        with search.step("network"):
            # Seconds of every length in both directions, and four staircases at every node, of one per ten arcs or so.
            arc_bytes = 16 * len(sizing.lengths) + 4 * num_samples
            counted = with_host_counts(network, most_arcs=int(min(MOST_ARCS, search.room_bytes / arc_bytes)))
        if counted is None:
            raise MemoryError
        search.count("arcs of sublot networks", len(counted.arcs))
        self._network = counted

    def _fixed(self, network: SizedNetwork) -> tuple[SizedNetwork, tuple[SizedRelaxation, SizedRelaxation]]:
        """Leave out arcs that only lead past the limit, as long as that leaves out a tenth of them."""
        while True:
            with self._search.step("arc fixing"):
                forward, backward = (relax_line(network, line) for line in LINES)
                least_s = through_s(network, LINES[0], forward) + through_s(network, LINES[1], backward)
                self._raise(float(least_s.min(initial=math.inf)))
                left = network.restricted(least_s < self._limit_s)
            if len(left.arcs) > KEPT_SHARE * len(network.arcs) or len(network.arcs) == 0 or self._search.out_of_budget:
                return network, (forward, backward)
            network = left

    def _label(self, network: SizedNetwork) -> None:
        """One round of labels; its fastest paths are simulated."""
        search = self._search
        self._network, relaxations = self._fixed(network)
        if self.bound_s >= self._limit_s:
            return
        with search.step("labels"):
            limit_s = self._limit_s
            found = label_paths(
                self._network,
                relaxations,
                limit_s,
                max_labels=self._max_labels,
                most_paths=MOST_PATHS,
                stop=lambda: search.out_of_budget,
            )
        search.count("labels with sublots", found.num_labels)
        plans = [
            plan for path in found.paths if (plan := sized_plan(self._network, self.variant, path.steps)) is not None
        ]
        search.offer(plans)
        self._raise(found.bound_s)
        # Plans that only queues on shared links keep above the bound are never closed by more labels.
        self.stalled = found.complete
        self._max_labels *= 4

    def _raise(self, path_s: float) -> None:
        """No plan is faster than the fastest path, of which only the order of the additions is uncertain."""
        self.bound_s = max(self.bound_s, min(self._limit_s, path_s * (1 - LABEL_SUM)))
