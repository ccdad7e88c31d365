"""Why nothing fits, in numbers, and what would help."""

from dataclasses import replace

import pytest

from stagecut.planner.core.job import Optimizer, Recompute
from stagecut.planner.core.operators.parallelism import Parallelism
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.diagnosis.feasibility import fitting_plan
from stagecut.planner.solvers.diagnosis.shortage import find_shortages, with_memory
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.catalogue import CATALOGUE, WEIGHTS_ONLY, chain, job, kinds, one_device_per_server, one_server

TOO_LARGE = next(known.problem for known in CATALOGUE if known.name == "too large")


def activations(memory_bytes, *, schedule=Schedule.ONE_F_ONE_B, micro_batch=1, recompute=Recompute.AUTO):
    """Two layers, 4 micro-batches, one device: 2 bytes saved in each layer, 1 byte between them."""
    return Problem(
        model=chain(2, {"gpu": 2.0}, saved_bytes=2.0, output_bytes=1.0),
        cluster=one_device_per_server("gpu", memory_bytes=memory_bytes),
        job=job(4, schedule=schedule, micro_batch=micro_batch, recompute=recompute),
    )


def test_shortage_names_stage_memory_and_limit():
    """Each layer alone needs 3 bytes, each device has 2; the nearest plan has one layer on each."""
    shortages = find_shortages(TOO_LARGE)
    assert [(s.device_type, s.layers) for s in shortages] == [("gpu", (0, 1)), ("gpu", (1, 2))]
    assert {(s.needed_bytes, s.limit_bytes, s.short_bytes) for s in shortages} == {(3.0, 2.0, 1.0)}


def test_a_search_that_is_stopped_names_the_nearest_plan_known_by_then():
    """Stopped once a plan is known that fits twice the memory, or before."""
    answers = iter([False])
    shortages = find_shortages(TOO_LARGE, stop=lambda: next(answers, True))
    assert [(s.needed_bytes, s.limit_bytes, s.remedy) for s in shortages] == [
        (3.0, 2.0, "100% more memory on every device")
    ] * 2
    assert find_shortages(TOO_LARGE, stop=lambda: True) == ()


def only_sharding_helps(**choices):
    """A layer of one parameter on two devices of 6 bytes, where a stage has one replica: 1 + 8 bytes of state."""
    state = Optimizer(name="state", weight_bytes=1.0, gradient_bytes=0.0, state_bytes=8.0)
    limited = {"optimizer": state, "replicas": (1,), "pipelines": (1,), "zero1": True} | choices
    return Problem(
        model=chain(1, {"gpu": 2.0}, params_bytes=2.0),
        cluster=one_server("gpu", 2, memory_bytes=6.0),
        job=replace(job(4, micro_batch=2), **limited),
    )


def test_dividing_operators_is_proposed_where_that_alone_helps():
    """Two devices that divide samples hold half of the state each: 1 + 8 / 2 bytes."""
    (shortage,) = find_shortages(only_sharding_helps())
    assert (shortage.needed_bytes, shortage.limit_bytes) == (9.0, 6.0)
    assert shortage.remedy.startswith("divide operators in any way (--sharding auto); or ")
    assert run(only_sharding_helps(sharding=(Parallelism.ZERO1,)), "milp", SolveOptions()).plan is not None


def test_what_no_sharding_fits_is_counted_with_the_least_memory_of_all():
    """Data parallelism holds all of the 9 bytes, ZeRO-1 over two devices 1 + 4: more than 4."""
    for allowed, needed_bytes in (((Parallelism.DATA,), 9.0), ((Parallelism.DATA, Parallelism.ZERO1), 5.0)):
        problem = only_sharding_helps(sharding=allowed)
        small = with_memory(problem, 4.0 / 6.0)
        result = run(small, "milp", SolveOptions())
        assert result.status is Status.INFEASIBLE
        assert [shortage.needed_bytes for shortage in result.shortages] == [needed_bytes]


def test_where_nothing_else_helps_there_is_more_memory():
    """3 bytes instead of 2, found to 1 %: more servers help no single layer."""
    remedies = {shortage.remedy for shortage in find_shortages(TOO_LARGE)}
    assert remedies <= {"50% more memory on every device", "51% more memory on every device"}


@pytest.mark.parametrize(
    ("problem", "remedy"),
    [
        # 4 bytes; recomputing 1 + 2.
        (activations(3.0, recompute=Recompute.NEVER), "allow recomputation (--recompute auto)"),
        # 4 micro-batches in flight x 4, recomputing 4 x 1 + 2; 1F1B on one device has one in flight.
        (activations(4.0, schedule=Schedule.GPIPE), "schedule 1f1b"),
        # 2 samples x 3 bytes, recomputing; with one sample 3.
        (activations(3.0, micro_batch=2), "micro-batches of 1"),
        # 3 bytes on one device; 2 of each layer alone.
        (activations(2.0), "one more server 'host-0'"),
    ],
    ids=["recompute", "schedule", "micro-batch", "servers"],
)
def test_first_change_that_helps_is_proposed(problem, remedy):
    (shortage, *_) = find_shortages(problem)
    assert shortage.remedy.startswith(f"{remedy}; or ")
    assert shortage.short_bytes > 0


def known(name):
    return next(known.problem for known in CATALOGUE if known.name == name)


def test_dividing_the_optimizer_state_is_proposed_where_it_does():
    whole = known("divided optimizer state")
    (shortage,) = find_shortages(replace(whole, job=replace(whole.job, zero1=False)))
    assert (shortage.needed_bytes, shortage.limit_bytes) == (5.0, 3.0)
    assert shortage.remedy.startswith("shard the optimizer state (--zero1); or ")


def test_sharing_layers_is_proposed_where_it_does():
    """A layer of 4 bytes on two devices of 2."""
    model = chain(1, {"gpu": 1.0}, params_bytes=8.0, tensor_parallel_bytes=0.0)
    chosen = job(1, optimizer=WEIGHTS_ONLY, tensor_parallel=(1,))
    (shortage,) = find_shortages(Problem(model=model, cluster=one_server("gpu", 2, memory_bytes=2.0), job=chosen))
    assert shortage.remedy.startswith("allow any tensor parallelism (--tensor-parallel auto); or ")


def test_single_pipeline_is_proposed_where_it_does():
    """4 layers of 1 byte on two hosts of 2; a third host would give two pipelines no equal shares."""
    problem = known("several pipelines")
    cluster = replace(problem.cluster, device_types=kinds(gpu=2.0))
    chosen = replace(problem.job, optimizer=WEIGHTS_ONLY, pipelines=(2,))
    model = chain(4, {"gpu": 2.0}, params_bytes=2.0)
    (shortage,) = find_shortages(replace(problem, model=model, cluster=cluster, job=chosen))
    assert shortage.remedy.startswith("a single pipeline (--pipelines 1); or ")


def test_several_servers_are_proposed_where_one_does_not_do():
    """4 layers of 1 byte, one device of 1: three more are needed, and counts are doubled."""
    problem = Problem(
        model=chain(4, {"gpu": 2.0}, params_bytes=2.0),
        cluster=one_device_per_server("gpu", memory_bytes=1.0),
        job=job(1, optimizer=WEIGHTS_ONLY),
    )
    (shortage,) = find_shortages(problem)
    assert shortage.remedy.startswith("4 more servers 'host-0'; or ")
    assert (shortage.layers, shortage.needed_bytes, shortage.limit_bytes) == ((0, 4), 4.0, 1.0)


def test_only_stages_that_lack_memory_are_named_the_worst_first():
    """3 layers of 2 bytes on devices of 3 and 1: both lack memory by the same factor at best."""
    cluster = one_device_per_server("large", "small")
    cluster = replace(cluster, device_types=kinds(large=3.0, small=1.0))
    problem = Problem(
        model=chain(3, {"large": 1.0, "small": 1.0}, params_bytes=4.0),
        cluster=cluster,
        job=job(1, optimizer=WEIGHTS_ONLY),
    )
    shortages = find_shortages(problem)
    missing = [shortage.short_bytes for shortage in shortages]
    assert missing == sorted(missing, reverse=True)
    assert all(shortage.short_bytes > 0 for shortage in shortages)


def test_what_memory_cannot_mend_has_no_shortage():
    """Three replicas on one device."""
    problem = Problem(model=chain(1, {"gpu": 1.0}), cluster=one_server("gpu", 1), job=job(1, replicas=(3,)))
    assert find_shortages(problem) == ()


def test_memory_of_every_device_is_multiplied():
    assert [kind.memory_bytes for kind in with_memory(TOO_LARGE, 1.5).cluster.device_types] == [3.0]
    assert fitting_plan(TOO_LARGE) is None
    assert fitting_plan(with_memory(TOO_LARGE, 1.5)) is not None


@pytest.mark.parametrize("solver", ["milp", "dp"])
def test_infeasible_result_carries_the_shortages(solver):
    result = run(TOO_LARGE, solver, SolveOptions())
    assert result.status is Status.INFEASIBLE
    assert result.shortages == find_shortages(TOO_LARGE)


def test_interleaved_plan_that_comes_nearest_is_described():
    """Two layers of 3 bytes on one device of 2, as two chunks that need 6 together."""
    problem = replace(TOO_LARGE, job=replace(TOO_LARGE.job, schedules=(Schedule.INTERLEAVED,)))
    problem = replace(problem, cluster=one_device_per_server("gpu", memory_bytes=2.0))
    shortages = find_shortages(problem)
    assert [(s.layers, s.needed_bytes, s.limit_bytes) for s in shortages] == [((0, 1), 6.0, 2.0), ((1, 2), 6.0, 2.0)]
