"""Descent, and the moves it is given."""

import numpy as np

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.network.arrangement import PlacedStage
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.solvers.heuristic.local_search import (
    change_groups,
    descend,
    improve,
    sequence_of,
    simulated_times,
)
from stagecut.planner.solvers.heuristic.moves import (
    NUM_WIDTHS,
    groups_of,
    neighbouring_cuts,
    neighbouring_runs,
    runs_of,
)
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import chain, job, kinds, one_device_per_server

FIRST, SECOND, THIRD = (Placement(server_class=index, island=0) for index in range(3))


def _layout(*stops_and_placements):
    return tuple(PlacedStage(stop=stop, placement=placement, opens=True) for stop, placement in stops_and_placements)


def _search(problem):
    return Search(problem, SolveOptions(time_limit_s=None))


def _chain_of_two(num_layers=12):
    """A device 3 times as fast as the other, M = 8."""
    return Problem(
        model=chain(num_layers, {"fast": 1.0, "slow": 3.0}), cluster=one_device_per_server("fast", "slow"), job=job(8)
    )


def _placed(problem, *stops_and_placements):
    tables = StageTables(_search(problem).costs)
    return sequence_of(tables, problem.variants[0], _layout(*stops_and_placements))


def test_one_boundary_is_shifted_as_far_as_each_stage_keeps_a_layer():
    """Boundary at 3 of 6: by 1 and 2 either way, 4 would leave the chain."""
    cuts = neighbouring_cuts(np.array([3, 6]))
    assert sorted(map(tuple, cuts.tolist())) == [(1, 6), (2, 6), (4, 6), (5, 6)]


def test_a_layer_passes_through_the_stages_between():
    """Boundaries at 2 and 4 of 6: each alone by one, or both by one; two would leave a stage empty."""
    cuts = neighbouring_cuts(np.array([2, 4, 6]))
    assert sorted(map(tuple, cuts.tolist())) == [(1, 3, 6), (1, 4, 6), (2, 3, 6), (2, 5, 6), (3, 4, 6), (3, 5, 6)]


def test_a_single_stage_has_no_neighbours():
    assert len(neighbouring_cuts(np.array([3]))) == 0


def test_long_pipelines_move_layers_over_few_distances_but_the_shortest_and_the_longest():
    stops = 3 * np.arange(1, 62)
    cuts = neighbouring_cuts(stops)
    moved = [tuple(np.flatnonzero(cut != stops)) for cut in cuts]
    widths = {len(boundaries) for boundaries in moved}
    assert {1, 2, 60} <= widths and len(widths) <= NUM_WIDTHS
    assert all(boundaries == tuple(range(boundaries[0], boundaries[-1] + 1)) for boundaries in moved)
    assert {boundaries[0] for boundaries in moved if len(boundaries) == 2} == set(range(59))


def test_descent_by_estimates_and_by_simulation_end_at_the_balanced_cut():
    """The descent goes from 1 + 11 layers (1 and 33 s) to 9 + 3 (9 and 9 s): total 18 + 7 x 9 = 81.

    Neither 8 + 4 (8 and 12 s) nor 10 + 2 (10 and 6 s) is faster: 8 x 12 = 96, and the fill row of
    the first stage of 10 s (k = 2) says 16 + 7 x 10 - 5 = 81.
    """
    problem = _chain_of_two()
    stops, seconds = descend(*_placed(problem, (1, FIRST), (12, SECOND)))
    assert (stops.tolist(), seconds) == ([9, 12], 81.0)
    search = _search(problem)
    start = _layout((1, FIRST), (12, SECOND))
    assert improve(search, problem.variants[0], start, float("inf")) == search.best_s == 81.0
    assert [stage.stop for stage in search.best_plan.stages] == [9, 12]


def test_cuts_that_are_no_plans_take_forever():
    """A layer needs 2 bytes while it runs, a device has 1."""
    problem = Problem(
        model=chain(2, {"gpu": 1.0}, working_bytes=2.0),
        cluster=one_device_per_server("gpu", "gpu", memory_bytes=1.0),
        job=job(1),
    )
    sequence, stops = _placed(problem, (1, FIRST), (2, SECOND))
    assert simulated_times(_search(problem), sequence, stops[None]).tolist() == [np.inf]


def test_groups_are_added_where_they_help():
    """The search goes from the slow device alone to both, with 9 + 3 layers as above."""
    problem = _chain_of_two()
    search = _search(problem)
    change_groups(search, StageTables(search.costs), *_placed(problem, (12, SECOND)), 8 * 36.0)
    assert search.best_s == 81.0
    assert len(search.best_plan.stages) == 2


def test_runs_and_groups_are_inverse():
    groups = (
        PlacedGroup(placement=FIRST, opens=True),
        PlacedGroup(placement=FIRST, opens=False),
        PlacedGroup(placement=SECOND, opens=True),
    )
    assert runs_of(groups) == ((FIRST, FIRST), (SECOND,))
    assert groups_of(runs_of(groups)) == groups


def test_stages_are_merged_split_dropped_and_hosts_moved():
    """Host 0 has two devices, host 1 has one; all three are used, one stage each."""
    servers = (
        Server(name="pair", islands=(Island(device_type="gpu", count=2),)),
        Server(name="single", islands=(Island(device_type="gpu", count=1),)),
    )
    cluster = Cluster(name="three", device_types=kinds(gpu=float("inf")), servers=servers)
    problem = Problem(model=chain(6, {"gpu": 1.0}), cluster=cluster, job=job(2, micro_batch=2))
    both, twice = Placement(server_class=0, island=0, replicas=2), Placement(server_class=1, island=0, replicas=2)
    found = set(neighbouring_runs(problem, cluster, 2, ((FIRST, FIRST), (SECOND,))))
    expected = {
        ((SECOND,),),
        ((FIRST, FIRST),),
        ((FIRST,), (SECOND,)),
        ((both,), (SECOND,)),
        ((SECOND,), (FIRST, FIRST)),
    }
    assert expected <= found
    assert not any(twice in run for runs in found for run in runs)


def test_the_hosts_of_one_stage_are_divided_among_two():
    """Four hosts of one device: a stage on all of them becomes two on two each; one host alone is no such stage."""
    cluster = Cluster(
        name="four",
        device_types=kinds(gpu=float("inf")),
        servers=(Server(name="single", count=4, islands=(Island(device_type="gpu", count=1),)),),
    )
    problem = Problem(model=chain(6, {"gpu": 1.0}), cluster=cluster, job=job(4, micro_batch=4))

    def on(num_hosts):
        return (Placement(server_class=0, island=0, num_hosts=num_hosts, replicas=num_hosts),)

    found = set(neighbouring_runs(problem, cluster, 4, (on(4),)))
    assert {(on(2), on(2)), (on(2),)} <= found
