"""Constraints of the MIP over a stage network: what they allow, and what each family forbids.

By hand: two hosts of one device, two layers of F = B = 1 s, one micro-batch, 1F1B.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings

from stagecut.planner.core.cluster import Cluster, Island, Link, Server
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.rows import build_rows
from stagecut.planner.solvers.exact import mixed_integer_program as program
from tests.catalogue import chain, job, kinds
from tests.network_paths import all_paths, plan_paths, positioned_network
from tests.property.strategies import problems

TOLERANCE = 1e-9


def point(rows, path):
    """Columns of a path: its arcs, its prefixes, and T and its halves as small as the rows allow."""
    columns, arcs = program.columns_of(rows), rows.network.arcs
    values = np.zeros(columns.total)
    values[path] = 1.0
    for first, share in ((columns.round_trip, rows.round_trip), (columns.forward, rows.forward)):
        for layer in range(1, rows.network.num_layers + 1):
            values[first + layer - 1] = share[path][arcs.stop[path] <= layer].sum()
    for target in range(rows.num_targets):
        families = tuple(replace(family, target=0) for family in rows.families if family.target == target)
        values[columns.target + target] = max(0.0, replace(rows, families=families).value(path))
    halves = values[columns.target + 1 : columns.missing].sum()
    values[columns.target] = max(values[columns.target], halves)
    return values


def activity(block, values):
    return np.bincount(block.rows, weights=block.values * values[block.columns], minlength=len(block.lower))


def holds(block, values):
    found = activity(block, values)
    scale = TOLERANCE * (1 + np.abs(values).max())
    return bool((found >= block.lower - scale).all() and (found <= block.upper + scale).all())


def blocks(rows):
    columns = program.columns_of(rows)
    return {
        "flow": program.flow(rows),
        "round trip": program.prefix(rows, columns.round_trip, rows.round_trip),
        "forward": program.prefix(rows, columns.forward, rows.forward),
        "hosts": program.hosts(rows, columns),
        "flush halves": program.flush(columns),
        **{family.name: program.bound_rows(rows, columns, family) for family in rows.families},
    }


def broken(rows, values):
    return [name for name, block in blocks(rows).items() if not holds(block, values)]


@settings(max_examples=40)
@given(problems(max_layers=4, max_devices=3, max_micro_batches=4))
def test_every_plan_keeps_all_constraints_and_no_shorter_time_does(problem):
    """The least T that the constraints allow a plan is the value of its rows."""
    network = positioned_network(problem)
    rows = build_rows(network)
    target = program.columns_of(rows).target
    paths = plan_paths(network)[:60]
    assume(paths)
    for path in paths:
        values = point(rows, path)
        assert values[target] == pytest.approx(rows.value(path), rel=1e-12)
        assert broken(rows, values) == []
        if values[target] > 0:
            values[target] *= 1 - 1e-6
            assert broken(rows, values) != []


def pair_of_hosts(*, count=2, num_microbatches=1, schedule=Schedule.ONE_F_ONE_B):
    server = Server(name="host", count=count, islands=(Island(device_type="gpu", count=1),))
    cluster = Cluster(name="pair", device_types=kinds(gpu=math.inf), servers=(server,))
    problem = Problem(model=chain(2, {"gpu": 2.0}), cluster=cluster, job=job(num_microbatches, schedule=schedule))
    return build_rows(positioned_network(problem))


def path_of_stages(rows, num_stages):
    is_stage = rows.network.arcs.is_stage
    return next(path for path in all_paths(rows.network) if is_stage[path].sum() == num_stages)


def test_columns_follow_one_another():
    """GPipe: T and its halves; 2 layers, 1 server class."""
    rows = pair_of_hosts(schedule=Schedule.GPIPE)
    num_arcs = len(rows.network.arcs)
    assert program.columns_of(rows) == tuple(num_arcs + offset for offset in (0, 2, 4, 7, 8))


def test_flow_forbids_a_path_with_a_gap_and_two_paths_at_once():
    rows = pair_of_hosts()
    alone, both = path_of_stages(rows, 1), path_of_stages(rows, 2)
    values = point(rows, both)
    assert holds(program.flow(rows), values)
    values[both[1]] = 0.0
    assert not holds(program.flow(rows), values)
    values[both[1]] = 1.0
    values[alone] = 1.0
    assert not holds(program.flow(rows), values)


def test_flow_forbids_no_path_at_all():
    rows = pair_of_hosts()
    assert not holds(program.flow(rows), np.zeros(program.columns_of(rows).total))


def test_prefixes_add_up_what_stops_at_each_layer():
    """Two stages of 2 s: E = (2, 4), D = (1, 2). One stage: E = (0, 4), D = (0, 2)."""
    rows = pair_of_hosts()
    columns = program.columns_of(rows)
    for num_stages, wanted in ((2, [2.0, 4.0, 1.0, 2.0]), (1, [0.0, 4.0, 0.0, 2.0])):
        values = point(rows, path_of_stages(rows, num_stages))
        assert values[columns.round_trip : columns.target].tolist() == wanted
        assert broken(rows, values) == []
        values[columns.round_trip] += 0.5
        assert "round trip" in broken(rows, values)


def test_hosts_that_are_missing_must_be_paid_for():
    """The network keeps paths over more hosts than there are; one missing host mends that."""
    rows = pair_of_hosts()
    one = replace(rows.network.cluster.servers[0], count=1)
    problem = rows.network.costs.problem
    smaller = replace(problem, cluster=replace(problem.cluster, servers=(one,)))
    short = replace(rows, network=replace(rows.network, costs=CostModel(smaller)))
    values = point(short, path_of_stages(short, 2))
    assert broken(short, values) == ["hosts"]
    values[program.columns_of(short).missing] = 1.0
    assert broken(short, values) == []


def test_rows_limit_the_time_from_below():
    """Three micro-batches, two stages of 2 s, rows of the last: fill 4 + 2 x 2, busy 2 + 3 x 2; pair 4 + 4.

    Its sync row, 1 + 3 x 2, and its drain row, 4 - 1 + 2 x 2, leave room.
    """
    rows = pair_of_hosts(num_microbatches=3)
    values = point(rows, path_of_stages(rows, 2))
    columns = program.columns_of(rows)
    assert values[columns.target] == 8.0
    values[columns.target] = 7.75
    assert set(broken(rows, values)) == {"busy", "fill", "pair"}


def test_layer_families_have_a_row_per_layer_and_others_per_inner_boundary():
    rows = pair_of_hosts()
    sizes = {
        family.name: len(program.bound_rows(rows, program.columns_of(rows), family).lower) for family in rows.families
    }
    assert sizes == {"busy": 2, "fill": 2, "sync": 2, "drain": 2, "link": 1, "pair": 1}


def test_messages_over_a_shared_fabric_take_their_time_in_both_directions():
    """3 micro-batches, c = 1: F_0, 6 messages and B_0 take 8 s."""
    island = Island(device_type="gpu", count=2, fabric=Link(bandwidth_bytes_per_s=1.0), shared=True)
    server = Server(name="host", islands=(island,))
    cluster = Cluster(name="together", device_types=kinds(gpu=math.inf), servers=(server,))
    model = chain(2, {"gpu": 2.0}, output_bytes=1.0)
    rows = build_rows(positioned_network(Problem(model=model, cluster=cluster, job=job(3))))
    values, target = point(rows, path_of_stages(rows, 2)), program.columns_of(rows).target
    for seconds, is_broken in ((7.75, True), (8.0, False)):
        values[target] = seconds
        assert ("both ways" in broken(rows, values)) == is_broken


def test_halves_of_a_flush_add_up():
    """GPipe, 3 micro-batches: each half 2 x 1 + 2 x 1 = 4 s."""
    rows = pair_of_hosts(num_microbatches=3, schedule=Schedule.GPIPE)
    columns = program.columns_of(rows)
    assert rows.num_targets == 3
    values = point(rows, path_of_stages(rows, 2))
    assert values[columns.target : columns.missing].tolist() == [8.0, 4.0, 4.0]
    values[columns.target + 1] = 5.0
    assert broken(rows, values) == ["flush halves"]


def test_without_a_flush_there_are_no_halves():
    assert len(program.flush(program.columns_of(pair_of_hosts())).lower) == 0


def test_exclusion_forbids_the_path_and_no_other():
    rows = pair_of_hosts()
    stages = rows.network.arcs.is_stage
    alone, both = path_of_stages(rows, 1), path_of_stages(rows, 2)
    block = program.exclusion([both[stages[both]]])
    assert not holds(block, point(rows, both))
    assert holds(block, point(rows, alone))
    assert len(program.exclusion([]).lower) == 0
