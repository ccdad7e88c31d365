"""Exact solvers agree with enumeration and with one another, and obey the laws of the search space."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import Link
from stagecut.planner.core.result import Status
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.solvers.diagnosis.shortage import with_memory
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import RowChoice, SolveOptions
from tests.property.strategies import problems

ROUNDING = 1e-9
"""Relative error allowed for sums of the same numbers in another order."""
EXACT = SolveOptions(gap=0.0, time_limit_s=None)
EXACT_SHARED = replace(EXACT, rows=RowChoice.SHARED)
SCALE = 4.0


def same(seconds):
    return pytest.approx(seconds, rel=ROUNDING, abs=0.0)


def check_against(oracle, result, problem):
    """Check that bound and plan enclose the optimum, that the plan is legal, and that both agree on feasibility."""
    assert (result.status is Status.INFEASIBLE) == (oracle.status is Status.INFEASIBLE)
    if oracle.plan is None:
        assert (result.plan, result.bound_s) == (None, None)
        return
    assert (result.bound_s or 0.0) <= oracle.objective_s * (1 + ROUNDING)
    assert result.objective_s >= oracle.objective_s * (1 - ROUNDING)
    assert faults(CostModel(problem), result.plan) == ()


def row_bound(problem):
    """Optimum of the shared rows, infinite where nothing fits."""
    result = run(problem, "dp", EXACT)
    return float("inf") if result.status is Status.INFEASIBLE else result.row_bound_s


@settings(max_examples=50)
@given(problems(max_layers=7, max_micro_batches=6))
def test_milp_finds_the_optimum_of_brute_force_and_agrees_with_dp_on_the_rows_they_share(problem):
    """With gap 0, plans are excluded until the bound meets the best one. Further rows only raise the bound."""
    oracle = run(problem, "brute-force", EXACT)
    dynamic, shared, result = run(problem, "dp", EXACT), run(problem, "milp", EXACT_SHARED), run(problem, "milp", EXACT)
    for each in (dynamic, shared, result):
        check_against(oracle, each, problem)
    assert dynamic.row_bound_s == shared.row_bound_s or dynamic.row_bound_s == same(shared.row_bound_s)
    if oracle.plan is not None:
        assert result.status is Status.OPTIMAL
        assert result.objective_s == same(oracle.objective_s)
        assert result.bound_s == same(oracle.objective_s)
        assert (dynamic.bound_s or 0.0) == same(dynamic.row_bound_s)
        assert (shared.bound_s or 0.0) == same(shared.row_bound_s)
        assert result.bound_s >= shared.row_bound_s * (1 - ROUNDING)


@settings(max_examples=25)
@given(problems(max_layers=7, max_micro_batches=6), st.sampled_from((1e-4, 0.02, 0.3)))
def test_optimal_is_claimed_within_the_gap_only(problem, gap):
    """Unlike at gap 0, the search may stop at any plan that is near enough."""
    oracle, result = run(problem, "brute-force", EXACT), run(problem, "milp", replace(EXACT, gap=gap))
    check_against(oracle, result, problem)
    if oracle.plan is not None:
        assert result.status is Status.OPTIMAL
        assert result.gap <= gap + ROUNDING


@settings(max_examples=25)
@given(problems(max_layers=5, max_devices=3, max_micro_batches=5, tables=False))
def test_independent_formulation_agrees_on_the_shared_rows(problem):
    """Textbook assignment program, stage network and labels."""
    textbook = run(problem, "textbook-milp", EXACT)
    shared = run(problem, "milp", EXACT_SHARED)
    assert (textbook.status is Status.INFEASIBLE) == (shared.status is Status.INFEASIBLE)
    if textbook.row_bound_s is not None:
        assert shared.row_bound_s == same(textbook.row_bound_s)
        assert row_bound(problem) == same(textbook.row_bound_s)


@settings(max_examples=20)
@given(problems(max_layers=6))
def test_more_memory_never_hurts(problem):
    assert row_bound(with_memory(problem, 1.5)) <= row_bound(problem) * (1 + ROUNDING)


@settings(max_examples=20)
@given(problems(max_layers=6, several_pipelines=False), st.data())
def test_more_hosts_never_hurt(problem, data):
    """A host of any class is added; with one pipeline, as not every number of hosts divides into equal shares."""
    servers = list(problem.cluster.servers)
    index = data.draw(st.integers(0, len(servers) - 1))
    servers[index] = replace(servers[index], count=servers[index].count + 1)
    grown = replace(problem, cluster=replace(problem.cluster, servers=tuple(servers)))
    assert row_bound(grown) <= row_bound(problem) * (1 + ROUNDING)


def slower(problem):
    """Every time of layers, links and memories multiplied by `SCALE`."""

    def table(times):
        return replace(
            times,
            forward_s=tuple(SCALE * seconds for seconds in times.forward_s),
            backward_s=tuple(SCALE * seconds for seconds in times.backward_s),
        )

    def measured(points):
        return tuple((num_bytes, SCALE * seconds) for num_bytes, seconds in points)

    def link(fast):
        return fast and Link(
            bandwidth_bytes_per_s=fast.bandwidth_bytes_per_s / SCALE,
            latency_s=SCALE * fast.latency_s,
            table=measured(fast.table),
        )

    def island(fast):
        all_reduce = tuple(replace(each, table=measured(each.table)) for each in fast.all_reduce)
        return replace(fast, fabric=link(fast.fabric), all_reduce=all_reduce)

    def kind(fast):
        return replace(
            fast,
            peak_flops_per_s=tuple((precision, rate / SCALE) for precision, rate in fast.peak_flops_per_s),
            memory_bandwidth_bytes_per_s=fast.memory_bandwidth_bytes_per_s / SCALE,
            launch_s=SCALE * fast.launch_s,
        )

    def server(fast):
        return replace(fast, islands=tuple(map(island, fast.islands)), nic=link(fast.nic), bridge=link(fast.bridge))

    model, cluster = problem.model, problem.cluster
    layers = tuple(replace(layer, times=tuple(map(table, layer.times))) for layer in model.layers)
    slow_cluster = replace(
        cluster,
        device_types=tuple(map(kind, cluster.device_types)),
        servers=tuple(map(server, cluster.servers)),
        network=link(cluster.network),
        overrides=tuple(replace(override, link=link(override.link)) for override in cluster.overrides),
    )
    return replace(problem, model=replace(model, layers=layers), cluster=slow_cluster)


def renamed(problem):
    """Servers under other names and in reverse order."""
    cluster = problem.cluster
    names = {server.name: f"other-{server.name}" for server in cluster.servers}
    return replace(
        problem,
        cluster=replace(
            cluster,
            servers=tuple(replace(server, name=names[server.name]) for server in reversed(cluster.servers)),
            overrides=tuple(
                replace(override, servers=tuple(names[name] for name in override.servers))
                for override in cluster.overrides
            ),
        ),
    )


@settings(max_examples=15)
@given(problems(max_layers=5, max_micro_batches=4))
def test_scaling_all_times_scales_the_optimum_and_names_and_order_of_servers_change_nothing(problem):
    """Both the optimum of the shared rows and that of the simulated times."""
    bound_s, before = row_bound(problem), run(problem, "milp", EXACT)
    for other, scale in ((slower(problem), SCALE), (renamed(problem), 1.0)):
        assert row_bound(other) == same(scale * bound_s)
        after = run(other, "milp", EXACT)
        assert after.status is before.status
        if before.plan is not None:
            assert after.objective_s == same(scale * before.objective_s)
