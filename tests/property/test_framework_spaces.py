"""Search spaces of what a framework can run: exact solvers agree with enumeration, and plans keep to the space."""

from dataclasses import replace
from itertools import groupby, islice

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import UNLIMITED, Cluster, DeviceType, Island, Server
from stagecut.planner.core.frameworks import RULES, Framework, RankOrder
from stagecut.planner.core.job import Job, Recompute, standard_optimizer
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import Layer, ModelProfile
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.reference.brute_force import all_plans
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.cases import cases_of
from stagecut.planner.solvers.search.options import SolveOptions
from tests.exported_plans import ALIKE, WRITERS
from tests.property.strategies import problems

ROUNDING = 1e-9
EXACT = SolveOptions(gap=0.0, time_limit_s=None)


def kinds_of(num_layers):
    """An embedding, blocks of an attention and a feed-forward layer, and a head where a layer is left."""
    pairs = ("attention", "feed-forward") * ((num_layers - 1) // 2)
    return ("embedding", *pairs, "head")[:num_layers] if num_layers > 2 else ("embedding", "block")[-num_layers:]


@st.composite
def framework_problems(draw, frameworks=ALIKE, **limits):
    """A small problem of a transformer, for a framework that has one of its schedules."""
    problem = draw(problems(**{"max_layers": 6, "max_micro_batches": 6, **limits}))
    framework = draw(st.sampled_from(frameworks))
    rules = RULES[framework]
    kinds = kinds_of(problem.model.num_layers)
    layers = (replace(layer, kind=kind) for layer, kind in zip(problem.model.layers, kinds, strict=True))
    schedules = tuple(own for own in problem.job.schedules if own in rules.schedules) or (Schedule.ONE_F_ONE_B,)
    zero1 = problem.job.zero1 and rules.has_zero1
    precision = Precision.FP16 if Precision.FP16 in rules.precisions else rules.precisions[0]
    kinds_of_devices = (
        replace(own, peak_flops_per_s=tuple((precision, rate) for _, rate in own.peak_flops_per_s))
        for own in problem.cluster.device_types
    )
    free = replace(
        problem,
        model=replace(problem.model, layers=tuple(layers), precision=precision),
        cluster=replace(problem.cluster, device_types=tuple(kinds_of_devices)),
        job=replace(problem.job, schedules=schedules, zero1=zero1, pipelines=None, precision=precision),
    )
    try:
        return free, replace(free, job=replace(free.job, framework=framework))
    except BadInputError:  # no number of pipelines has ranks that can be placed
        reject()


def keeps_to(problem, plan):
    """Whether a plan is in the space of the problem's framework, in the words of docs/search_space.md."""
    rules, first, kinds = problem.rules, plan.stages[0], [layer.kind for layer in problem.model.layers]
    for stage in plan.stages:
        if (stage.replicas, stage.tensor_parallel, stage.recompute) != (
            first.replicas,
            first.tensor_parallel,
            first.recompute,
        ):
            return False
        if rules.has_whole_blocks and stage.start > 0:
            begins_block = kinds[stage.start] in ("attention", "block") and "attention" in kinds[: stage.start]
            if not begins_block:
                return False
        if any(edge.source < stage.start <= edge.target for edge in problem.model.skip_edges):
            return False
    copies, is_divided = first.replicas * len(plan.pipelines), len(plan.stages) > 1 or first.tensor_parallel > 1
    if problem.job.framework is Framework.TORCHTITAN and copies > 1 and is_divided:
        return False
    if not rules.has_partly_filled_pipelines and is_divided:
        room = problem.cluster.num_devices // len(plan.pipelines) // len(first.devices)
        starts = [index for index, kind in enumerate(kinds) if kind in ("attention", "block")][1:]
        edges = problem.model.skip_edges
        free = [cut for cut in starts if not any(edge.source < cut <= edge.target for edge in edges)]
        if plan.num_microbatches < min(1 + len(free), room):
            return False
    return problem.allows_degrees(plan.share, replicas=first.replicas, tensor_parallel=first.tensor_parallel)


def modes_of(problem):
    auto = problem.job.recompute is Recompute.AUTO
    return (Recompute.NEVER, Recompute.ALWAYS) if auto else (problem.job.recompute,)


def least_s(free, restricted):
    """The fastest of all plans of the free problem that keep to the space; infinite if there are none."""
    best_s = float("inf")
    for mode in modes_of(free):
        own = replace(free, job=replace(free.job, recompute=mode))
        costs = CostModel(own)
        plans = [plan for plan in all_plans(own, costs) if keeps_to(restricted, plan)]
        best_s = min([best_s, *iteration_times([costs.plan(plan) for plan in plans])])
    return best_s


def ranked(order, plan):
    """Devices by rank: see `RankOrder`."""
    degree = plan.stages[0].tensor_parallel
    cells = [
        (group, number, copy, stage.devices[copy * degree : (copy + 1) * degree])
        for number, pipeline in enumerate(plan.pipelines)
        for group, stage in enumerate(pipeline.stages[: plan.num_groups])
        for copy in range(stage.replicas)
    ]
    by_copy = order is RankOrder.COPIES_LAST
    cells.sort(key=lambda cell: (cell[1], cell[2], cell[0]) if by_copy else cell[:3])
    return [device for cell in cells for device in cell[3]]


def hosts_in_a_row(devices):
    """Whether the ranks of every host follow one another."""
    runs = [host for host, _ in groupby(device.rsplit("/", 1)[0] for device in devices)]
    return len(runs) == len(set(runs))


def check_plan(problem, plan):
    assert faults(CostModel(problem), plan) == ()
    assert keeps_to(problem, plan)
    assert any(hosts_in_a_row(ranked(order, plan)) for order in problem.rules.rank_orders)
    WRITERS[problem.job.framework](problem, plan)


WITH_CHUNKS = tuple(framework for framework in ALIKE if Schedule.INTERLEAVED in RULES[framework].schedules)


@settings(max_examples=20, deadline=None)
@given(framework_problems(WITH_CHUNKS, max_devices=3, interleaved=True))
def test_interleaved_plans_are_found_too(pair):
    free, restricted = pair
    optimum_s = least_s(free, restricted)
    result = run(restricted, "milp", EXACT)
    if optimum_s == float("inf"):
        assert result.status is Status.INFEASIBLE
        return
    assert result.status is Status.OPTIMAL
    assert result.objective_s == pytest.approx(optimum_s, rel=ROUNDING, abs=0.0)
    assert result.bound_s == pytest.approx(optimum_s, rel=ROUNDING, abs=0.0)
    check_plan(restricted, result.plan)


@settings(max_examples=60, deadline=None)
@given(framework_problems())
def test_exact_solvers_find_the_optimum_of_an_enumeration(pair):
    free, restricted = pair
    optimum_s = least_s(free, restricted)
    oracle, result, dynamic = (run(restricted, solver, EXACT) for solver in ("brute-force", "milp", "dp"))
    if optimum_s == float("inf"):
        assert {oracle.status, result.status, dynamic.status} == {Status.INFEASIBLE}
        return
    for exact in (oracle, result):
        assert exact.status is Status.OPTIMAL
        assert exact.objective_s == pytest.approx(optimum_s, rel=ROUNDING, abs=0.0)
        assert exact.bound_s == pytest.approx(optimum_s, rel=ROUNDING, abs=0.0)
        check_plan(restricted, exact.plan)
    assert (dynamic.bound_s or 0.0) <= optimum_s * (1 + ROUNDING)
    assert dynamic.objective_s >= optimum_s * (1 - ROUNDING)
    check_plan(restricted, dynamic.plan)


@st.composite
def clusters_of_blocks(draw):
    """Three blocks that fit anywhere, on one or two classes of up to four hosts with one or two islands."""
    gpu = DeviceType(
        name="gpu",
        peak_flops_per_s=((Precision.BF16, 1.0),),
        memory_bytes=1e9,
        memory_bandwidth_bytes_per_s=1.0,
    )
    servers = tuple(
        Server(
            name=f"class-{index}",
            islands=tuple(
                Island(device_type="gpu", count=draw(st.sampled_from((1, 2, 4))), fabric=UNLIMITED)
                for _ in range(draw(st.sampled_from((1, 1, 2))))
            ),
            count=draw(st.sampled_from((1, 2, 4))),
            nic=UNLIMITED,
        )
        for index in range(draw(st.sampled_from((1, 1, 2))))
    )
    layers = tuple(
        Layer(name=f"block-{index}", kind="block", forward_flops=1.0, tensor_parallel_bytes=1.0) for index in range(3)
    )
    return Problem(
        model=ModelProfile(name="blocks", layers=layers, precision=Precision.BF16),
        cluster=Cluster(name="drawn", device_types=(gpu,), servers=servers, network=UNLIMITED),
        job=Job(
            global_batch=16,
            micro_batches=(1, 2, 4),
            optimizer=standard_optimizer("sgd", Precision.BF16),
            precision=Precision.BF16,
            recompute=Recompute.NEVER,
            framework=draw(st.sampled_from(ALIKE)),
        ),
    )


@settings(max_examples=25, deadline=None)
@given(clusters_of_blocks(), st.data())
def test_all_plans_have_ranks_that_give_every_host_a_row(problem, data):
    """By an order of the framework, whatever hosts the stages are on."""
    case = data.draw(st.sampled_from(cases_of(problem)))
    share = data.draw(st.sampled_from(case.problem.shares))
    own = replace(case.problem, job=replace(case.problem.job, pipelines=(share.num_pipelines,)))
    for plan in islice(all_plans(own), 400):
        assert any(hosts_in_a_row(ranked(order, plan)) for order in problem.rules.rank_orders)


@settings(max_examples=30, deadline=None)
@given(framework_problems())
def test_no_plan_of_a_framework_is_faster_than_the_optimum_without_one(pair):
    """Which is the least over the choices of recomputation: `auto` alone leaves out plans that recompute needlessly."""
    free, restricted = pair
    result = run(restricted, "milp", EXACT)
    best_s = min(
        run(replace(free, job=replace(free.job, recompute=mode)), "milp", EXACT).objective_s or float("inf")
        for mode in {Recompute.AUTO, *modes_of(free)}
    )
    assert (result.objective_s or float("inf")) >= best_s * (1 - ROUNDING)


@settings(max_examples=20, deadline=None)
@given(framework_problems(), st.sampled_from(("greedy", "even", "annealing", "megatron-even")))
def test_plans_of_heuristics_keep_to_the_space(pair, solver):
    _, restricted = pair
    result = run(restricted, solver, replace(EXACT, time_limit_s=5.0))
    if result.plan is not None:
        check_plan(restricted, result.plan)
