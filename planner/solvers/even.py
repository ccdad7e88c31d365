"""Equal layer counts on one device after another: what people do by hand.

For every variant: each stage takes the smallest allowed number of replicas (one, as a rule), the
device groups are used in the cluster's order, and the layers are split into as many equal runs as
there are groups, the remainder spread over the pipeline. Where a stage does not fit in memory,
one group fewer is tried, down to a single one. The best variant by simulation is returned.
"""

import numpy as np

from planner.core.placement import Placement
from planner.core.plan import Plan
from planner.core.problem import Problem, Variant
from planner.core.result import Result
from planner.network.layout import Block, Layout, assemble
from planner.network.seating import Seat
from planner.solvers.search import Search


def solve(problem: Problem, search: Search) -> Result:
    """The best even split over the allowed schedules and micro-batch sizes; proves nothing."""
    plans = (_even_plan(search, variant) for variant in problem.variants)
    search.offer([plan for plan in plans if plan is not None])
    return search.result("even", proves=False)


def even_layout(num_layers: int, seats: tuple[Seat, ...]) -> Layout:
    """One stage per seat, layer counts equal up to one."""
    stops = np.arange(1, len(seats) + 1) * num_layers // len(seats)
    return tuple(
        Block(stop=int(stop), placement=seat.placement, opens=seat.opens)
        for stop, seat in zip(stops, seats, strict=True)
    )


def _even_plan(search: Search, variant: Variant) -> Plan | None:
    problem = search.problem
    seats = _seats_in_order(problem, variant.micro_batch)
    for num_stages in range(min(problem.model.num_layers, len(seats)), 0, -1):
        plan = assemble(search.costs, variant, even_layout(problem.model.num_layers, seats[:num_stages]))
        if plan is not None:
            return plan
    return None


def _seats_in_order(problem: Problem, micro_batch: int) -> tuple[Seat, ...]:
    """Groups of the smallest allowed number of devices, host after host."""
    largest = max(island.count for server in problem.cluster.servers for island in server.islands)
    replicas = next((r for r in range(1, largest + 1) if problem.job.allows_replicas(r, micro_batch)), None)
    if replicas is None:
        return ()
    seats = []
    for index, server in enumerate(problem.cluster.servers):
        groups = [
            Placement(server_class=index, island=island, replicas=replicas)
            for island, group in enumerate(server.islands)
            for _ in range(group.count // replicas)
        ]
        host = [Seat(placement=placement, opens=number == 0) for number, placement in enumerate(groups)]
        seats.extend(host * server.count)
    return tuple(seats)
