"""How the search rates the plan of a mapping: with contention for links, or as if there were none."""

from collections.abc import Sequence
from dataclasses import replace

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.plan import Plan
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from stagecut.planner.solvers.papers.autopipe_mapping.link_loads import load_bound, tied_sums
from stagecut.planner.solvers.search.search import Search


class Evaluator:
    """Ranks and times plans, and keeps the fastest.

    Parameters
    ----------
    blind
        Whether to ignore contention: every fabric is a switch, and there are no link-load rows and no queues.
        Pipelines that share a host still get equal parts of its links.
    """

    def __init__(self, search: Search, *, blind: bool = False) -> None:
        self.search, self.blind = search, blind
        problem = search.problem
        self.costs = CostModel(replace(problem, cluster=_with_switches(problem.cluster))) if blind else search.costs
        self.tables = StageTables(self.costs)
        self.best: Plan | None = None
        self.best_s = float("inf")

    @property
    def must_stop(self) -> bool:
        """Whether the budget is spent and there is a plan to return."""
        return self.search.out_of_budget and self.best is not None

    def rank_s(self, plan: Plan) -> float:
        """Lower bound of the iteration time, including link loads and the summing of tied weights."""
        costs = self._costs_of(plan)
        if self.blind:
            return lower_bound(costs)
        return max(lower_bound(costs), load_bound(costs, tied_sums(self.costs.of(plan.share), plan)))

    def times_s(self, plans: Sequence[Plan]) -> list[float]:
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
    """The same costs, with no link shared by any two flows."""
    nowhere: tuple[tuple[str, ...], ...] = ((),)
    between, stages = nowhere * (costs.num_stages - 1), nowhere * costs.num_stages
    return replace(costs, forward_links=between, backward_links=between, sync_links=stages)


def _with_switches(cluster: Cluster) -> Cluster:
    """The cluster with a path of its own for every pair of devices of an island."""
    servers = tuple(
        replace(server, islands=tuple(replace(island, shared=False) for island in server.islands))
        for server in cluster.servers
    )
    return replace(cluster, servers=servers)
