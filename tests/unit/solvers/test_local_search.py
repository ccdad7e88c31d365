"""Descent, and the moves it is given."""

from planner.core.cluster import Cluster, Island, Server
from planner.core.placement import Placement
from planner.core.problem import Problem
from planner.network.layout import Block
from planner.network.seating import Seat
from planner.solvers.balance import Balancer
from planner.solvers.local_search import fastest, improve, restructure
from planner.solvers.moves import (
    LAYER_MOVES,
    group_moves,
    runs_of,
    seats_of,
    shift_boundary,
    shift_two_boundaries,
)
from planner.solvers.options import SolveOptions
from planner.solvers.search import Search
from tests.catalogue import chain, job, kinds, one_device_per_server

FIRST, SECOND, THIRD = (Placement(server_class=index, island=0) for index in range(3))


def _layout(*stops_and_placements):
    return tuple(Block(stop=stop, placement=placement, opens=True) for stop, placement in stops_and_placements)


def _stops(layouts):
    return [tuple(block.stop for block in layout) for layout in layouts]


def _search(problem):
    return Search(problem, SolveOptions(time_limit_s=None))


def _chain_of_two(num_layers=12):
    """A device 3 times as fast as the other, M = 8."""
    return Problem(
        model=chain(num_layers, {"fast": 1.0, "slow": 3.0}), cluster=one_device_per_server("fast", "slow"), job=job(8)
    )


def test_boundary_is_shifted_as_far_as_each_stage_keeps_a_layer():
    """Boundary at 3 of 6: by 1 and 2 either way, 4 would leave the chain."""
    layout = _layout((3, FIRST), (6, SECOND))
    assert sorted(_stops(shift_boundary(layout))) == [(1, 6), (2, 6), (4, 6), (5, 6)]


def test_layer_passes_through_the_stages_between():
    layout = _layout((2, FIRST), (4, SECOND), (6, THIRD))
    assert sorted(_stops(shift_two_boundaries(layout))) == [(1, 3, 6), (3, 5, 6)]


def test_improvement_ends_at_the_balanced_cut():
    """From 1 + 11 layers (1 and 33 s) to 9 + 3 (9 and 9 s): total 18 + 7 x 9 = 81.

    Neither 8 + 4 (8 and 12 s) nor 10 + 2 (10 and 6 s) is faster: 8 x 12 = 96, and the fill row of
    the first stage of 10 s (k = 2) says 16 + 7 x 10 - 5 = 81.
    """
    problem = _chain_of_two()
    search = _search(problem)
    start = _layout((1, FIRST), (12, SECOND))
    layout, seconds = improve(search, problem.variants[0], start, float("inf"), moves=LAYER_MOVES)
    assert _stops([layout]) == [(9, 12)]
    assert seconds == search.best_s == 81.0


def test_fastest_are_returned_in_order_and_what_does_not_fit_is_passed_over():
    """9 + 3, then 8 + 4; the second server has one device only, so that 2 replicas do not fit."""
    problem = _chain_of_two()
    layouts = [_layout((stop, FIRST), (12, SECOND)) for stop in (2, 5, 8, 9)]
    layouts.append(_layout((12, Placement(server_class=0, island=0, replicas=2))))
    found = fastest(_search(problem), problem.variants[0], layouts, count=2)
    assert _stops(layout for layout, _ in found) == [(9, 12), (8, 12)]


def test_groups_are_added_where_they_help():
    """From the slow device alone to both: 9 + 3 layers as above."""
    problem = _chain_of_two()
    search, variant = _search(problem), problem.variants[0]
    moves = group_moves(problem, variant, Balancer(search.costs, variant))
    start = _layout((12, SECOND))
    layout, seconds = restructure(search, variant, start, 8 * 36.0, groups=moves, layers=LAYER_MOVES)
    assert {block.placement for block in layout} == {FIRST, SECOND}
    assert seconds == 81.0


def test_runs_and_seats_are_inverse():
    seats = (
        Seat(placement=FIRST, opens=True),
        Seat(placement=FIRST, opens=False),
        Seat(placement=SECOND, opens=True),
    )
    layout = tuple(Block(stop=stop + 1, placement=seat.placement, opens=seat.opens) for stop, seat in enumerate(seats))
    assert runs_of(layout) == ((FIRST, FIRST), (SECOND,))
    assert seats_of(runs_of(layout)) == seats


def test_stages_are_merged_split_dropped_and_hosts_moved():
    """Host 0 has two devices, host 1 has one; the layout uses all three, one stage each."""
    servers = (
        Server(name="pair", islands=(Island(device_type="gpu", count=2),)),
        Server(name="single", islands=(Island(device_type="gpu", count=1),)),
    )
    cluster = Cluster(name="three", device_types=kinds(gpu=float("inf")), servers=servers)
    problem = Problem(model=chain(6, {"gpu": 1.0}), cluster=cluster, job=job(2, micro_batch=2))
    variant = problem.variants[0]
    (move,) = group_moves(problem, variant, Balancer(_search(problem).costs, variant))
    start = (
        Block(stop=2, placement=FIRST, opens=True),
        Block(stop=4, placement=FIRST, opens=False),
        Block(stop=6, placement=SECOND, opens=True),
    )
    both = Placement(server_class=0, island=0, replicas=2)
    assert {runs_of(layout) for layout in move(start)} == {
        ((SECOND,),),
        ((FIRST, FIRST),),
        ((FIRST,), (SECOND,)),
        ((both,), (SECOND,)),
        ((FIRST, FIRST), (SECOND,)),
        ((SECOND,), (FIRST, FIRST)),
    }
