"""Search spaces for a framework in which operators are divided: enumeration, writers and solvers agree."""

from dataclasses import replace
from functools import cache
from itertools import product

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from stagecut.models import build_model
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Link, Server
from stagecut.planner.core.frameworks import RULES
from stagecut.planner.core.job import Job, Recompute, standard_optimizer
from stagecut.planner.core.layer_graphs.degrees import roles_of_stages
from stagecut.planner.core.messages.errors import BadInputError, UnsupportedError
from stagecut.planner.core.operators.parallelism import Parallelism
from stagecut.planner.core.operators.roles import meshes_with_roles
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.sharding.options import allowed_strategies
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.reference.brute_force import all_plans
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.exported_plans import ALIKE, WRITERS

EXACT = SolveOptions(gap=0.0, time_limit_s=None)
KINDS = (
    (Parallelism.TENSOR, Parallelism.SEQUENCE),
    (Parallelism.CONTEXT, Parallelism.FSDP),
    (Parallelism.TENSOR, Parallelism.SEQUENCE, Parallelism.ZERO1),
    (Parallelism.EXPERTS, Parallelism.DATA, Parallelism.FSDP),
    tuple(Parallelism),
)


@cache
def small(name):
    """Embedding, two blocks and head of a transformer."""
    model = build_model(name, precision=Precision.BF16)
    return replace(model, layers=model.layers[:5] + model.layers[-1:])


@st.composite
def framework_problems(draw, *, devices=(2, 4)):
    """On one or two hosts, some of them tight."""
    model = small(draw(st.sampled_from(("llama-mini", "llama-mini", "bert-mini", "mixtral-8x7b"))))
    state_bytes = 8 * sum(layer.params_bytes for layer in model.layers)
    num_devices, num_hosts = draw(st.sampled_from(devices)), draw(st.integers(1, 2))
    device = DeviceType(
        name="device",
        peak_flops_per_s=((Precision.BF16, 1e12),),
        memory_bytes=draw(st.sampled_from((float("inf"), 1.2 * state_bytes, 0.7 * state_bytes, 0.4 * state_bytes))),
        memory_bandwidth_bytes_per_s=1e11,
    )
    rate, latency_s = draw(st.sampled_from((1e8, 1e9, 1e11))), draw(st.sampled_from((0.0, 1e-4)))
    fabric = Link(bandwidth_bytes_per_s=rate, latency_s=latency_s)
    server = Server(
        name="server",
        count=num_hosts,
        islands=(Island(device_type="device", count=num_devices // num_hosts or 1, fabric=fabric),),
        nic=Link(bandwidth_bytes_per_s=1e9, latency_s=1e-4),
    )
    framework = draw(st.sampled_from(ALIKE))
    try:
        return Problem(
            model=model,
            cluster=Cluster(name="cluster", device_types=(device,), servers=(server,)),
            job=Job(
                global_batch=4,
                micro_batches=draw(st.sampled_from(((1,), (2,), (1, 4)))),
                pipelines=draw(st.sampled_from((None, (1,), (1,)))),
                optimizer=standard_optimizer("adamw", Precision.BF16),
                precision=Precision.BF16,
                schedules=(Schedule.ONE_F_ONE_B,),
                tensor_parallel=draw(st.sampled_from((None, (2,), (4,), (4,)))),  # 2 heads are not in fours
                recompute=draw(st.sampled_from(Recompute)),
                zero1=RULES[framework].has_zero1 and draw(st.booleans()),
                sharding=draw(st.sampled_from(KINDS)),
                framework=framework,
            ),
        )
    except BadInputError:  # no number of pipelines has ranks that can be placed
        reject()


def settled(problem):
    """The problem with every choice that all stages make alike; boundaries are any."""
    auto = problem.job.recompute is Recompute.AUTO
    modes = (Recompute.NEVER, Recompute.ALWAYS) if auto else (problem.job.recompute,)
    sizes = problem.job.tensor_parallel or (1, 2, 4)
    divisions = [(degree, None) for degree in sizes]
    divisions += [
        (size, own) for size in sizes if size > 1 for own in meshes_with_roles(size, kinds=problem.job.sharding)
    ]
    for mode, replicas, (degree, roles) in product(modes, (1, 2, 4), divisions):
        parts = replicas * (1 if roles is None else roles.degrees.data)
        micro_batches = tuple(size for size in problem.job.micro_batches if size % parts == 0)
        if micro_batches and (roles is None or has_strategies(problem, roles)):
            free = replace(
                problem.job,
                framework=None,
                micro_batches=micro_batches,
                recompute=mode,
                replicas=(replicas,),
                tensor_parallel=(degree,),
                sharding=None if roles is None else problem.job.sharding,
            )
            yield replace(problem, job=free, roles=roles)


def has_strategies(problem, roles):
    """Whether every operator can be divided in these roles."""
    operators = {operator for layer in problem.model.layers for operator in layer.operators}
    ways = (allowed_strategies(own, roles.sizes, kinds=problem.job.sharding, roles=roles) for own in operators)
    return all(list(own) for own in ways)


def every_plan(problem):
    """Plans with alike stages that the framework can run, by what is said of plans, with their costs."""
    outer = CostModel(problem)
    for own in settled(problem):
        costs = CostModel(own)
        for plan in all_plans(own, costs):
            if not faults(outer, plan):
                yield plan, costs.plan(plan)


@settings(max_examples=12)
@given(framework_problems())
def test_exact_solvers_find_the_optimum_of_an_enumeration(problem):
    found = list(every_plan(problem))
    best_s = min(iteration_times([costs for _, costs in found]), default=float("inf"))
    result, dynamic = (run(problem, solver, EXACT) for solver in ("milp", "dp"))
    if not found:
        assert result.status is Status.INFEASIBLE
        return
    assert result.status is Status.OPTIMAL
    assert result.objective_s == pytest.approx(best_s, rel=1e-9)
    assert result.bound_s == pytest.approx(best_s, rel=1e-9)
    assert (dynamic.bound_s or 0.0) <= best_s * (1 + 1e-9)
    for plan in (result.plan, dynamic.plan):
        assert not faults(CostModel(problem), plan)
        WRITERS[problem.job.framework](problem, plan)


@settings(max_examples=8)
@given(framework_problems(devices=(2,)))
def test_frameworks_run_every_plan_of_their_space_and_read_its_roles(problem):
    """A plan of a case is written; its stages have one set of degrees."""
    for plan, _ in every_plan(problem):
        WRITERS[problem.job.framework](problem, plan)
        assert len({roles.degrees for roles in roles_of_stages(problem.model, plan.stages)}) == 1


@settings(max_examples=8)
@given(framework_problems(devices=(2,)), st.sampled_from(("greedy", "even")))
def test_plans_of_heuristics_keep_to_the_space(problem, solver):
    try:
        result = run(problem, solver, EXACT)
    except UnsupportedError:  # an even split has no shardings
        return
    if result.plan is not None:
        assert not faults(CostModel(problem), result.plan)
        WRITERS[problem.job.framework](problem, result.plan)
