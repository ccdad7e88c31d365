"""Links that several flows of a pipeline queue for."""

from functools import lru_cache

from stagecut.planner.cost.plan_costs import PlanCosts

Routes = tuple[tuple[int, ...], ...]
"""For each flow of a graph, the numbers of the shared links it uses."""

RouteNames = tuple[tuple[str, ...], ...]
"""For each flow of a graph, the names of all links it uses."""


def flow_routes(costs: PlanCosts) -> RouteNames:
    """Link names of each flow: activations, gradients, all-reduces."""
    return (*costs.forward_links, *costs.backward_links, *costs.sync_links)


@lru_cache(maxsize=1024)
def shared_routes(names: RouteNames) -> Routes:
    """Keep the links that make a difference, numbered in order of first use.

    A link of a single flow makes none: messages of a flow follow one another anyway. Nor does a
    link whose flows all share another link too: once served there, a message is first here as well.
    """
    users: dict[str, frozenset[int]] = {}
    for flow, route in enumerate(names):
        for name in route:
            users[name] = users.get(name, frozenset()) | {flow}
    groups = list(dict.fromkeys(group for group in users.values() if len(group) > 1))
    kept = [group for group in groups if not any(group < other for other in groups)]
    return tuple(tuple(link for link, group in enumerate(kept) if flow in group) for flow in range(len(names)))


def num_links(routes: Routes) -> int:
    """How many shared links there are."""
    return 1 + max((link for route in routes for link in route), default=-1)
