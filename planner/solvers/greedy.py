"""Layers in proportion to device speed, then local moves judged by the simulator.

For every variant, every allowed number of replicas r (the same for all stages), a few orders of
the servers (as given, fastest first, slowest first, largest memory first) and a few numbers of
stages, the first groups of r devices are given layers by :class:`planner.solvers.balance.Balancer`.
The fastest of these starts are improved by moving layers between stages, the best one also by
changing its groups. Nothing is random.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from planner.core.placement import Placement
from planner.core.problem import Problem, Variant
from planner.core.result import Result
from planner.cost.cost_model import CostModel
from planner.network.layout import Layout
from planner.network.seating import Seat
from planner.solvers.balance import Balancer
from planner.solvers.local_search import fastest, improve, restructure
from planner.solvers.moves import LAYER_MOVES, Run, group_moves, seats_of
from planner.solvers.search import Search

SHARES = (1.0, 0.75, 0.5, 0.25)
"""Of the groups there are, how many to use ..."""
FEWEST = 4
"""... besides every number up to this."""
NUM_IMPROVED = 3
WORTH_IMPROVING = 1.05
"""Layers are moved in so many starts at most, and in none slower than this times the fastest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A layout that fits, simulated."""

    variant: Variant
    layout: Layout
    seconds: float


def solve(problem: Problem, search: Search) -> Result:
    """The best plan met; proves nothing."""
    balancers = {variant: Balancer(search.costs, variant) for variant in problem.variants}
    starts = [start for balancer in balancers.values() for start in _starts(search, balancer)]
    starts.sort(key=lambda start: start.seconds)
    promising = [start for start in starts[:NUM_IMPROVED] if start.seconds <= WORTH_IMPROVING * starts[0].seconds]
    improved = [_with_layers_moved(search, start) for start in promising]
    if improved:
        best = min(improved, key=lambda candidate: candidate.seconds)
        moves = group_moves(problem, best.variant, balancers[best.variant])
        restructure(search, best.variant, best.layout, best.seconds, groups=moves, layers=LAYER_MOVES)
    return search.result("greedy", proves=False)


def _starts(search: Search, balancer: Balancer) -> list[Candidate]:
    if search.out_of_budget:
        return []
    variant = balancer.variant
    layouts = map(balancer.layout, dict.fromkeys(_seatings(search.costs, variant)))
    found = fastest(search, variant, (layout for layout in layouts if layout is not None), count=NUM_IMPROVED)
    return [Candidate(variant=variant, layout=layout, seconds=seconds) for layout, seconds in found]


def _with_layers_moved(search: Search, start: Candidate) -> Candidate:
    layout, seconds = improve(search, start.variant, start.layout, start.seconds, moves=LAYER_MOVES)
    return Candidate(variant=start.variant, layout=layout, seconds=seconds)


def _seatings(costs: CostModel, variant: Variant) -> Iterator[tuple[Seat, ...]]:
    """Every single group alone, and the first groups of every order."""
    problem = costs.problem
    most = problem.cluster.num_devices
    for replicas in (r for r in range(1, most + 1) if problem.job.allows_replicas(r, variant.micro_batch)):
        runs = [_runs(problem, index, replicas) for index in range(len(problem.cluster.servers))]
        for placement in dict.fromkeys(placement for hosts in runs for run in hosts for placement in run):
            yield (Seat(placement=placement, opens=True),)
        for order in _orders(costs, variant):
            seats = seats_of(tuple(run for index in order for run in runs[index]))
            for num_stages in _stage_counts(min(problem.model.num_layers, len(seats))):
                yield seats[:num_stages]


def _stage_counts(most: int) -> list[int]:
    counts = {round(share * most) for share in SHARES} | set(range(1, FEWEST + 1))
    return [count for count in sorted(counts) if 1 <= count <= most]


def _orders(costs: CostModel, variant: Variant) -> list[tuple[int, ...]]:
    """Sequences of server classes."""
    classes = range(len(costs.problem.cluster.servers))

    def least(value: Callable[[Placement], float]) -> Callable[[int], float]:
        islands = [range(len(server.islands)) for server in costs.problem.cluster.servers]
        return lambda index: min(value(Placement(server_class=index, island=island)) for island in islands[index])

    def model_s(placement: Placement) -> float:
        layers = {"start": 0, "stop": costs.problem.model.num_layers}
        cost = costs.stage(placement, micro_batch=variant.micro_batch, recompute=False, **layers)
        return float(np.sum(cost.forward_s + cost.backward_s))

    slowness = least(model_s)
    smallness = least(lambda placement: -costs.stages.device_type(placement).memory_bytes)
    orders = (
        tuple(classes),
        tuple(sorted(classes, key=slowness)),
        tuple(sorted(classes, key=slowness, reverse=True)),
        tuple(sorted(classes, key=smallness)),
    )
    return list(dict.fromkeys(orders))


def _runs(problem: Problem, server_class: int, replicas: int) -> list[Run]:
    """Groups of so many devices on every host of a class; whole hosts together where one has too few."""
    server = problem.cluster.servers[server_class]
    inside = tuple(
        Placement(server_class=server_class, island=island, replicas=replicas)
        for island, group in enumerate(server.islands)
        for _ in range(group.count // replicas)
    )
    if inside:
        return [inside] * server.count
    num_hosts, rest = divmod(replicas, server.num_devices)
    if rest or len(server.islands) > 1:
        return []
    whole = Placement(server_class=server_class, island=0, num_hosts=num_hosts, replicas=replicas)
    return [(whole,)] * (server.count // num_hosts)
