"""The mapping program against enumeration."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from stagecut.planner.core.cluster import UNLIMITED, Cluster, Island, Link, Server
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.arrangement import arrange, assemble
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.solvers.heuristic.min_max_cut import min_max_stops
from stagecut.planner.solvers.heuristic.moves import groups_of
from stagecut.planner.solvers.heuristic.sequence_costs import SequenceCosts
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from stagecut.planner.solvers.papers.autopipe_mapping.link_loads import load_bound, tied_sums
from stagecut.planner.solvers.papers.autopipe_mapping.mappings import stages_per_island, start_mappings
from stagecut.planner.solvers.papers.autopipe_mapping.options import run_choices
from stagecut.planner.solvers.papers.autopipe_mapping.program import MappingProgram
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import INFINITE, chain, job, kinds
from tests.property.strategies import problems

FAMILIES = ("busy", "fill", "sync", "link", "pair")
"""The bounds that the program has."""
NO_LIMIT = SolveOptions(time_limit_s=None)


def _value(costs, variant, mapping, stops, *, loads):
    """The largest row of a mapping from the costs of its plan; infinite where it does not fit."""
    plan = assemble(costs, variant, arrange(groups_of(mapping), stops))
    if plan is None:
        return float("inf")
    numbers = costs.plan(plan)
    between = tuple(tied for tied in tied_sums(costs, plan) if any("nic" in name for name in tied.route))
    rows_s = lower_bound(numbers, FAMILIES)
    return max(rows_s, load_bound(numbers, between)) if loads else rows_s


def _alternatives(costs, variant, mapping):
    """Every assignment of hosts and shapes to the runs of a mapping, as many stages on each island."""
    servers, menu = costs.cluster.servers, run_choices(costs, variant, mapping)
    for picks in itertools.product(
        *([run for run in menu if stages_per_island(run) == stages_per_island(own)] for own in mapping)
    ):
        used = np.zeros(len(servers))
        for run in picks:
            used[run[0].server_class] += run[0].num_hosts
        if all(number <= server.count for number, server in zip(used, servers, strict=True)):
            yield picks


def _first_mapping(costs, variant):
    """The start mapping with the most runs that fits, with balanced stops."""
    tables = StageTables(costs)
    starts = start_mappings(costs.problem, costs.cluster, variant.micro_batch)
    for mapping in sorted(starts, key=lambda mapping: -len(mapping)):
        stops = min_max_stops(SequenceCosts(tables, variant, groups_of(mapping)))
        if stops is not None:
            return mapping, stops.tolist()
    return None


def _check_against_enumeration(problem, *, loads):
    problem = replace(problem, job=replace(problem.job, schedules=(Schedule.ONE_F_ONE_B,)))
    variant = problem.variants[-1]
    costs = CostModel(problem).of(variant.share)
    found = _first_mapping(costs, variant)
    if found is None:
        return
    mapping, stops = found
    program = MappingProgram(costs, variant, mapping, stops, loads=loads)
    best = program.solve(Search(problem, NO_LIMIT), 60.0)
    least_s = min(_value(costs, variant, other, stops, loads=loads) for other in _alternatives(costs, variant, mapping))
    assert best is not None
    assert _value(costs, variant, best, stops, loads=loads) == pytest.approx(least_s, rel=1e-9, abs=1e-9)
    assert program.value_s == pytest.approx(least_s, rel=1e-6, abs=1e-6)


@settings(max_examples=30)
@given(problems(max_layers=6, max_devices=5))
def test_the_program_finds_the_least_rows_of_all_mappings(problem):
    """The cases have replicas, islands, shared fabrics, bridges, several pipelines, all-reduces and tied weights."""
    layers = problem.model.layers
    tied = replace(layers[-1], shared_params_bytes=layers[0].params_bytes)
    model = replace(problem.model, layers=(*layers[:-1], tied))
    _check_against_enumeration(replace(problem, model=model), loads=True)


@settings(max_examples=10)
@given(problems(max_layers=6, max_devices=5))
def test_without_loads_it_finds_the_least_of_the_other_rows(problem):
    """These are the rows that a mapping blind to contention minimises."""
    _check_against_enumeration(problem, loads=False)


def _three_servers(*, slow_nic):
    """Single devices that are alike, with interfaces of 1 byte/s, but the second one's."""
    servers = tuple(
        Server(
            name=f"s{index}",
            islands=(Island(device_type="gpu", count=1),),
            nic=Link(bandwidth_bytes_per_s=slow_nic if index == 1 else 1.0),
        )
        for index in range(3)
    )
    cluster = Cluster(name="c", device_types=kinds(gpu=INFINITE), servers=servers, network=UNLIMITED)
    return Problem(model=chain(3, {"gpu": 2.0}, output_bytes=0.5), cluster=cluster, job=job(6))


def test_a_server_with_a_slow_interface_goes_to_an_end_of_the_pipeline():
    """Its interface would carry the messages of two boundaries in the middle, 12 x 2 s, but 6 x 2 s at an end."""
    problem = _three_servers(slow_nic=0.25)
    costs, variant = CostModel(problem), problem.variants[0]
    mapping = next(iter(start_mappings(problem, problem.cluster, 1)))
    assert [run[0].server_class for run in mapping] == [0, 1, 2]
    program = MappingProgram(costs, variant, mapping, [1, 2, 3])
    best = program.solve(Search(problem, NO_LIMIT), 60.0)
    assert best[1][0].server_class != 1


def test_there_is_no_mapping_where_no_host_has_the_memory():
    """Two layers of 1 byte on devices of half a byte."""
    cluster = Cluster(
        name="c",
        device_types=kinds(gpu=0.5),
        servers=(Server(name="s", count=2, islands=(Island(device_type="gpu", count=1),)),),
    )
    problem = Problem(model=chain(2, {"gpu": 1.0}, saved_bytes=1.0, working_bytes=1.0), cluster=cluster, job=job(2))
    mapping = next(iter(start_mappings(problem, cluster, 1)))
    program = MappingProgram(CostModel(problem), problem.variants[0], mapping, [1, 2])
    assert program.solve(Search(problem, NO_LIMIT), 60.0) is None
