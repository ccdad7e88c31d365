"""AutoPipe-H's search as if no two flows ever shared a link, to learn what that costs."""

from dataclasses import replace

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import OwnObjective, Result
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.papers.autopipe_h import NAME, MappingSearch
from stagecut.planner.solvers.search.search import Search


def contention_blind(problem: Problem, search: Search) -> Result:
    """AutoPipe-H's search as if no two flows ever shared a link; its plan is then simulated as it is.

    Raises
    ------
    UnsupportedError
        If the job does not allow 1F1B.
    """
    blind = BlindSearch(problem, search)
    blind.run()
    if blind.best is not None:
        search.offer([blind.best], OwnObjective(name="time without contention, s", value=blind.best_s))
    return search.result(f"{NAME}, contention-blind", proves=False)


class BlindSearch(MappingSearch):
    """Every fabric is a switch, and there are no link-load rows and no queues.

    Pipelines that share a host still get equal parts of its links.
    """

    link_loads = False

    def __init__(self, problem: Problem, search: Search) -> None:
        super().__init__(problem, search, CostModel(replace(problem, cluster=_with_switches(problem.cluster))))
        self.best: Plan | None = None

    def rank_s(self, plan: Plan) -> float:
        """Lower bound of the iteration time without contention."""
        return lower_bound(without_queues(self.costs.plan(plan)))

    def simulated_s(self, plan: Plan) -> float:
        """Iteration time without contention."""
        seconds = float(iteration_times([without_queues(self.costs.plan(plan))])[0])
        if seconds < self.best_s:
            self.best = plan
        return seconds


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
