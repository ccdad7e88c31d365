"""What a search of mappings takes a plan's time to be: with contention for links, or as if there were none."""

from collections.abc import Sequence
from dataclasses import replace

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Variant
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.network.arrangement import Arrangement, assemble
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.heuristic.seated import SeatedStages
from stagecut.planner.solvers.heuristic.stage_tables import StageTables
from stagecut.planner.solvers.papers.autopipe_steps.mapping_links import load_bound, tied_sums
from stagecut.planner.solvers.search.search import Search


class Judge:
    """Ranks and times plans, and keeps the best one.

    Parameters
    ----------
    blind
        Whether to leave contention out: every fabric a switch, no link-load rows, no queues.
        Pipelines that share a host still have equal parts of what they share.
    """

    def __init__(self, search: Search, *, blind: bool = False) -> None:
        self.search, self.blind = search, blind
        problem = search.problem
        self.costs = CostModel(replace(problem, cluster=_with_switches(problem.cluster))) if blind else search.costs
        self.tables = StageTables(self.costs)
        self.best: Plan | None = None
        self.best_s = float("inf")

    def seated(self, variant: Variant, seats: Sequence[PlacedGroup]) -> SeatedStages:
        """Costs of stages on these seats."""
        return SeatedStages(self.tables, variant, seats)

    def plan(self, variant: Variant, layout: Arrangement) -> Plan | None:
        """The plan of a layout; None if it does not fit."""
        return assemble(self.costs.of(variant.share), variant, layout)

    def rank_s(self, plan: Plan) -> float:
        """Lower bound of the iteration time, link loads and sums of tied weights included."""
        costs = self._costs_of(plan)
        if self.blind:
            return lower_bound(costs)
        return max(lower_bound(costs), load_bound(costs, tied_sums(self.costs.of(plan.share), plan)))

    def times(self, plans: Sequence[Plan]) -> list[float]:
        """Simulated iteration times."""
        if self.blind:
            times_s = [float(time) for time in iteration_times([self._costs_of(plan) for plan in plans])]
        else:
            times_s = self.search.offer(plans)
        for plan, seconds in zip(plans, times_s, strict=True):
            if seconds < self.best_s:
                self.best, self.best_s = plan, seconds
        return times_s

    def _costs_of(self, plan: Plan) -> PlanCosts:
        costs = self.costs.plan(plan)
        return without_queues(costs) if self.blind else costs


def without_queues(costs: PlanCosts) -> PlanCosts:
    """The same costs with no link shared by any two flows."""
    nowhere: tuple[tuple[str, ...], ...] = ((),)
    return replace(
        costs,
        forward_links=nowhere * (costs.num_stages - 1),
        backward_links=nowhere * (costs.num_stages - 1),
        sync_links=nowhere * costs.num_stages,
    )


def _with_switches(cluster: Cluster) -> Cluster:
    """The cluster with a way of its own for every pair of devices of an island."""
    servers = tuple(
        replace(server, islands=tuple(replace(island, shared=False) for island in server.islands))
        for server in cluster.servers
    )
    return replace(cluster, servers=servers)
