"""Every plan of the search space, simulated: the oracle for the other solvers.

The enumeration follows the words of docs/search_space.md, host by host and device by device, and
shares nothing with the places and networks that the exact solvers search.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from planner.core.cluster import Cluster
from planner.core.errors import UnsupportedError
from planner.core.placement import Placement
from planner.core.plan import Plan
from planner.core.problem import Problem, Variant
from planner.core.result import Result
from planner.cost.cost_model import CostModel
from planner.network.layout import Block, assemble
from planner.network.seating import Seat
from planner.solvers.search import Search

MAX_LAYERS = 8
MAX_LAYOUTS = 200_000
BATCH = 512
"""Plans simulated in one call."""


def solve(problem: Problem, search: Search) -> Result:
    """The fastest plan, which is proven optimal by there being no other.

    Raises
    ------
    UnsupportedError
        If the problem is too large to enumerate.
    """
    _refuse_if_large(problem)
    plans = all_plans(problem, search.costs)
    while batch := list(itertools.islice(plans, BATCH)):
        if search.out_of_budget:
            return search.result("brute-force", proves=True)
        search.offer(batch)
    search.raise_bound(search.best_s)
    return search.result("brute-force", proves=True, exhausted=True)


def all_plans(problem: Problem, costs: CostModel | None = None) -> Iterator[Plan]:
    """Every plan of the search space that fits in memory, up to the names of equal hosts and devices."""
    costs = costs or CostModel(problem)
    for variant, seats in _seatings(problem):
        for cuts in itertools.combinations(range(1, problem.model.num_layers), len(seats) - 1):
            stops = (*cuts, problem.model.num_layers)
            layout = tuple(
                Block(stop=stop, placement=seat.placement, opens=seat.opens)
                for stop, seat in zip(stops, seats, strict=True)
            )
            plan = assemble(costs, variant, layout)
            if plan is not None:
                yield plan


def _refuse_if_large(problem: Problem) -> None:
    num_layers = problem.model.num_layers
    if num_layers > MAX_LAYERS:
        raise UnsupportedError(
            f"solver 'brute-force': the model has {num_layers} layers, more than {MAX_LAYERS}; use 'milp'"
        )
    count = 0
    for _, seats in _seatings(problem):
        count += math.comb(num_layers - 1, len(seats) - 1)
        if count > MAX_LAYOUTS:
            raise UnsupportedError(f"solver 'brute-force': more than {MAX_LAYOUTS} plans to simulate; use 'milp'")


def _seatings(problem: Problem) -> Iterator[tuple[Variant, tuple[Seat, ...]]]:
    unopened = tuple(server.count for server in problem.cluster.servers)
    for variant in problem.variants:
        walk = _Walk(problem=problem, micro_batch=variant.micro_batch)
        for seats in walk.extensions((), unopened, None):
            yield variant, seats


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenHost:
    """A single host on which the last stage sits."""

    server_class: int
    island: int
    entered: frozenset[int]
    """Islands used so far."""
    free: int
    """Devices left in the island of the last stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """All ways to seat stages one after another, first layer first."""

    problem: Problem
    micro_batch: int

    def extensions(
        self, seats: tuple[Seat, ...], unopened: tuple[int, ...], host: _OpenHost | None
    ) -> Iterator[tuple[Seat, ...]]:
        """The seats, and every way to go on from them; `unopened` hosts are left of each class."""
        if seats:
            yield seats
        if len(seats) == self.problem.max_stages:
            return
        if host is not None:
            for seat, inside in self._in_host(host):
                yield from self.extensions((*seats, seat), unopened, inside)
        for index, left in enumerate(unopened):
            for seat, after in self._in_new_hosts(index, left):
                remaining = (*unopened[:index], left - seat.placement.num_hosts, *unopened[index + 1 :])
                yield from self.extensions((*seats, seat), remaining, after)

    def _in_host(self, host: _OpenHost) -> Iterator[tuple[Seat, _OpenHost]]:
        for island, group in enumerate(self._cluster.servers[host.server_class].islands):
            if island == host.island:
                yield from self._in_island(host, island, host.free, opens=False)
            elif island not in host.entered:
                yield from self._in_island(host, island, group.count, opens=False)

    def _in_new_hosts(self, server_class: int, left: int) -> Iterator[tuple[Seat, _OpenHost | None]]:
        islands = self._cluster.servers[server_class].islands
        if left == 0:
            return
        for island, group in enumerate(islands):
            fresh = _OpenHost(server_class=server_class, island=island, entered=frozenset(), free=group.count)
            yield from self._in_island(fresh, island, group.count, opens=True)
        for num_hosts in range(2, left + 1 if len(islands) == 1 else 0):
            replicas = num_hosts * islands[0].count
            if self._allows(replicas):
                whole = Placement(server_class=server_class, island=0, num_hosts=num_hosts, replicas=replicas)
                yield Seat(placement=whole, opens=True), None

    def _in_island(self, host: _OpenHost, island: int, free: int, *, opens: bool) -> Iterator[tuple[Seat, _OpenHost]]:
        for replicas in filter(self._allows, range(1, free + 1)):
            placement = Placement(server_class=host.server_class, island=island, replicas=replicas)
            after = _OpenHost(
                server_class=host.server_class,
                island=island,
                entered=host.entered | {island},
                free=free - replicas,
            )
            yield Seat(placement=placement, opens=opens), after

    def _allows(self, replicas: int) -> bool:
        return self.problem.job.allows_replicas(replicas, self.micro_batch)

    @property
    def _cluster(self) -> Cluster:
        return self.problem.cluster
