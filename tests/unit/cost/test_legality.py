"""Every rule of docs/search_space.md, broken once.

Four layers of 1 s forward and 2 s backward, each with 1 byte of weights and as much optimizer state
(4 bytes in all), 10 bytes saved per sample. Host `pair` has two devices of 200 bytes in one island;
hosts `mixed-0`, `mixed-1` have a device in each of two islands. 8 samples in micro-batches of 2, 1F1B.
"""

import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings

from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Server
from stagecut.planner.core.job import AUTO, Job, Optimizer, Recompute
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule, warmup_depths
from stagecut.planner.core.share import Share
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.solvers.reference.brute_force import all_plans
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.property.strategies import problems

TIMES = TimeTable(device_type="gpu", samples=(1,), forward_s=(1.0,), backward_s=(2.0,))
BYTE = Optimizer(name="bytes", weight_bytes=2.0, gradient_bytes=2.0, state_bytes=4.0)
ISLAND = Island(device_type="gpu", count=1)


def problem(*, memory_bytes=200.0, **choices):
    """Weights of 1 byte are half an fp16 parameter: 0.5 (2 + 2 + 4) = 4 bytes a layer."""
    layers = tuple(
        Layer(name=f"layer{i}", params_bytes=1.0, saved_bytes=10.0, output_bytes=1.0, times=(TIMES,)) for i in range(4)
    )
    allowed = {"micro_batches": (2,), "schedules": (Schedule.ONE_F_ONE_B,)} | choices
    return Problem(
        model=ModelProfile(name="four", layers=layers),
        cluster=Cluster(
            name="small",
            device_types=(DeviceType(name="gpu", peak_flops_per_s=(), memory_bytes=memory_bytes),),
            servers=(
                Server(name="pair", islands=(Island(device_type="gpu", count=2),)),
                Server(name="mixed", islands=(ISLAND, ISLAND), count=2),
                Server(name="twin", islands=(Island(device_type="gpu", count=2),), count=2),
            ),
        ),
        job=Job(global_batch=8, optimizer=BYTE, **allowed),
    )


def stage(start, stop, *devices, depth, recompute=False, **changes):
    sizes = {"forward_micro_batch": 2, "backward_micro_batch": 2} | changes
    replicas = sizes.pop("replicas", len(devices))
    return Stage(
        start=start,
        stop=stop,
        devices=devices,
        replicas=replicas,
        recompute=recompute,
        warmup_depth=depth,
        **sizes,
    )


def plan(*stages, **changes):
    chosen = {"schedule": Schedule.ONE_F_ONE_B, "micro_batch": 2, "num_microbatches": 4} | changes
    return Plan(pipelines=(Pipeline(stages=stages),), **chosen)


def found(chosen, *stages, **changes):
    return faults(CostModel(chosen), plan(*stages, **changes))


TWO = (stage(0, 2, "pair/0", depth=2), stage(2, 4, "pair/1", depth=1))


def test_a_plan_of_the_search_space_has_no_faults():
    assert found(problem(), *TWO) == ()


def test_whole_hosts_may_hold_a_stage():
    """Four replicas on two hosts of two devices each, half a sample per replica is no whole one: b = 4."""
    chosen = problem(micro_batches=(4,))
    sizes = {"forward_micro_batch": 4, "backward_micro_batch": 4}
    whole = stage(0, 4, "twin-0/0", "twin-0/1", "twin-1/0", "twin-1/1", depth=1, **sizes)
    assert found(chosen, whole, micro_batch=4, num_microbatches=2) == ()


@pytest.mark.parametrize(
    ("choices", "changes", "words"),
    [
        ({"schedules": (Schedule.GPIPE,)}, {}, "schedule 1f1b is not allowed by the job: gpipe"),
        ({"micro_batches": (1, 4)}, {}, "micro-batch 2 is not allowed by the job: 1, 4"),
        ({}, {"num_microbatches": 5}, "5 micro-batches of 2 do not make the global batch 8"),
    ],
)
def test_choices_of_the_whole_plan_are_those_of_the_job(choices, changes, words):
    assert found(problem(**choices), *TWO, **changes) == (words,)


@pytest.mark.parametrize(
    ("choice", "num_sliced", "words"),
    [
        (0, 1, ("1 halved micro-batches, where the job asks for 0",)),
        (2, 1, ("1 halved micro-batches, where the job asks for 2",)),
        (9, 4, ()),
        (AUTO, 3, ()),
    ],
)
def test_as_many_micro_batches_are_halved_as_the_job_says(choice, num_sliced, words):
    """A stated number of four micro-batches is halved; under auto the simulator says how many pay."""
    assert found(problem(slice=choice), *TWO, num_sliced=num_sliced) == words


def test_all_layers_are_covered():
    assert found(problem(), TWO[0], stage(2, 3, "pair/1", depth=1)) == (
        "the last stage ends at layer 3, the model at 4",
    )


def test_layers_beyond_the_model_are_told_without_costs():
    assert "the last stage ends at layer 9, the model at 4" in found(problem(), stage(0, 9, "pair/0", depth=1))


def test_devices_exist():
    (fault,) = found(problem(), stage(0, 4, "pair/7", depth=1))
    assert fault.startswith("stage 0: devices must be devices of cluster 'small', got 'pair/7'")


@pytest.mark.parametrize("devices", [("pair/0", "twin-0/0"), ("mixed-0/0", "mixed-0/1"), ("twin-0/0", "twin-1/0")])
def test_devices_are_of_one_island_or_of_whole_hosts(devices):
    (fault,) = found(problem(), stage(0, 4, *devices, depth=1))
    assert fault.startswith("stage 0: devices must be")


def test_replicas_are_those_of_the_job():
    assert found(problem(replicas=(1,)), stage(0, 4, "pair/0", "pair/1", depth=1)) == (
        "stage 0: 2 replicas are not allowed by the job: 1",
    )


def test_replicas_divide_the_micro_batch():
    chosen = problem(micro_batches=(1,))
    sizes = {"forward_micro_batch": 1, "backward_micro_batch": 1}
    pair = stage(0, 4, "pair/0", "pair/1", depth=1, **sizes)
    assert found(chosen, pair, micro_batch=1, num_microbatches=8) == (
        "stage 0: 2 replicas do not divide the micro-batch 1",
    )


def test_stages_have_no_sizes_of_their_own():
    (fault,) = found(problem(), stage(0, 4, "pair/0", depth=1, backward_micro_batch=4))
    assert fault == "unequal micro-batches are not allowed by the job"


@pytest.mark.parametrize(("degrees", "words"), [(None, "1"), ((1, 4), "1, 4")])
def test_devices_that_share_a_replica_are_as_many_as_the_job_says(degrees, words):
    """Without a choice in the job, one device holds a replica: no layer can be shared."""
    pair = stage(0, 4, "pair/0", "pair/1", depth=1, replicas=1, tensor_parallel=2)
    assert found(problem(tensor_parallel=degrees), pair) == (
        f"stage 0: tensor parallelism of 2 is outside the search space: {words}",
    )
    assert found(problem(tensor_parallel=(2,)), pair) == ()


def test_devices_that_share_a_replica_are_on_one_host():
    chosen = problem(micro_batches=(4,), tensor_parallel=(1, 4))
    sizes = {"forward_micro_batch": 4, "backward_micro_batch": 4, "replicas": 1, "tensor_parallel": 4}
    four = stage(0, 4, "twin-0/0", "twin-0/1", "twin-1/0", "twin-1/1", depth=1, **sizes)
    (fault,) = found(chosen, four, micro_batch=4, num_microbatches=2)
    assert fault.startswith("stage 0: devices must be such that the 4 of each replica are on one host")


def test_warm_up_depth_is_that_of_the_schedule():
    """1F1B: 2 for the first of two stages."""
    (fault,) = found(problem(), stage(0, 2, "pair/0", depth=3), TWO[1])
    assert fault == "stage 0: warm-up depth 3, where 1f1b has 2"


def test_a_host_holds_one_run_of_stages():
    stages = (
        stage(0, 1, "twin-0/0", depth=3),
        stage(1, 2, "pair/0", depth=2),
        stage(2, 4, "twin-0/1", depth=1),
    )
    assert found(problem(), *stages) == ("stage 2 returns to a host that the stages before it have left",)


def test_an_island_holds_one_run_of_stages():
    """Islands of two devices and of one; the run leaves the first and comes back."""
    chosen = problem()
    islands = (Island(device_type="gpu", count=2), ISLAND)
    chosen = replace(chosen, cluster=replace(chosen.cluster, servers=(Server(name="host", islands=islands),)))
    stages = (stage(0, 1, "host/0", depth=3), stage(1, 2, "host/2", depth=2), stage(2, 4, "host/1", depth=1))
    assert found(chosen, *stages) == ("stage 2 returns to an island that the stages before it have left",)
    in_order = (stage(0, 1, "host/0", depth=3), stage(1, 2, "host/1", depth=2), stage(2, 4, "host/2", depth=1))
    assert found(chosen, *in_order) == ()


ALONE = stage(0, 4, "pair/0", depth=1)
ALONE_AGAIN = replace(ALONE, recompute=True)
"""All layers hold 16 bytes, and save 4 x 2 x 10 = 80 bytes for a micro-batch of 2: 96 bytes. Recomputing, the inputs
of layers 1 .. 3 are kept, 6 bytes, and 20 bytes of one layer while it works: 42 bytes."""


@pytest.mark.parametrize(
    ("recompute", "memory_bytes", "chosen", "faults_in_words"),
    [
        (Recompute.NEVER, 96.0, ALONE, ()),
        (Recompute.NEVER, 95.0, ALONE, ("stage 0: needs 96 B of memory and has 95 B",)),
        (Recompute.NEVER, 96.0, ALONE_AGAIN, ("stage 0: recomputes, where the job says never",)),
        (Recompute.ALWAYS, 96.0, ALONE_AGAIN, ()),
        (Recompute.ALWAYS, 96.0, ALONE, ("stage 0: does not recompute, where the job says always",)),
        (Recompute.AUTO, 96.0, ALONE, ()),
        (Recompute.AUTO, 96.0, ALONE_AGAIN, ("stage 0: recomputes although it fits in memory without",)),
        (Recompute.AUTO, 95.0, ALONE, ("stage 0: needs 96 B of memory and has 95 B",)),
        (Recompute.AUTO, 42.0, ALONE_AGAIN, ()),
        (Recompute.AUTO, 41.0, ALONE_AGAIN, ("stage 0: needs 42 B of memory and has 41 B",)),
    ],
)
def test_memory_and_recomputation_follow_the_job(recompute, memory_bytes, chosen, faults_in_words):
    assert found(problem(recompute=recompute, memory_bytes=memory_bytes), chosen) == faults_in_words


FIRST = (stage(0, 2, "pair/0", depth=2), stage(2, 4, "twin-0/0", "twin-0/1", depth=1))
SECOND = (stage(0, 2, "pair/1", depth=2), stage(2, 4, "twin-1/0", "twin-1/1", depth=1))
SHARES = replace(problem(), cluster=replace(problem().cluster, servers=problem().cluster.servers[0::2]))
"""Without `mixed`, whose islands hold a single device."""
HALVES = Share(num_pipelines=2, host_splits=(1, 2))
"""A device of `pair`, and a host of `twin`."""


def found_in(*pipelines, chosen=SHARES, share=HALVES, num_microbatches=2):
    copies = Plan(
        schedule=Schedule.ONE_F_ONE_B,
        micro_batch=2,
        num_microbatches=num_microbatches,
        pipelines=tuple(Pipeline(stages=stages) for stages in pipelines),
        share=share,
    )
    return faults(CostModel(chosen), copies)


def test_identical_pipelines_have_no_faults():
    """8 samples = 2 pipelines x 2 micro-batches of 2."""
    assert found_in(FIRST, SECOND) == ()


def test_micro_batches_of_all_pipelines_make_the_global_batch():
    assert found_in(FIRST, SECOND, num_microbatches=4) == (
        "4 micro-batches of 2 in each of 2 pipelines do not make the global batch 8",
    )


def test_pipelines_are_as_many_as_the_job_says():
    chosen = replace(SHARES, job=replace(SHARES.job, pipelines=(1, 4)))
    assert found_in(FIRST, SECOND, chosen=chosen) == ("2 pipelines are not allowed by the job: 1, 4",)
    single = replace(chosen, job=replace(SHARES.job, pipelines=(2,)))
    assert found(single, *TWO) == ("1 pipeline is not allowed by the job: 2",)


def test_pipelines_have_equal_shares():
    """There is a single `pair`, which cannot be dealt out host by host."""
    assert found_in(FIRST, SECOND, share=Share(num_pipelines=2, host_splits=(2, 2))) == (
        "2 pipelines are not given equal shares of the cluster by host splits of (2, 2)",
    )


def test_pipelines_keep_to_the_devices_of_the_first_one():
    swapped = (SECOND[0], stage(2, 4, "twin-1/1", "twin-1/0", depth=1))
    assert found_in(FIRST, swapped) == (
        "pipeline 1, stage 1: on twin-1/1, twin-1/0, where its share has twin-1/0, twin-1/1 for it",
    )


def test_pipelines_keep_to_their_shares():
    """Each has the host of the other."""
    of_second, of_first = found_in((FIRST[0], SECOND[1]), (SECOND[0], FIRST[1]))
    assert of_second == "pipeline 1, stage 1: on twin-0/0, twin-0/1, where its share has twin-1/0, twin-1/1 for it"
    assert of_first.startswith("stage 1: devices must be devices of cluster 'one of 2 equal shares of small'")


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ((stage(0, 4, "pair/1", depth=2),), "pipeline 1 has 1 stages, the first one 2"),
        (
            (replace(SECOND[0], recompute=True), SECOND[1]),
            "pipeline 1, stage 0: differs from that of the first pipeline in more than its devices",
        ),
    ],
)
def test_pipelines_are_identical(stages, words):
    assert found_in(FIRST, stages) == (words,)


def turns(*devices, chunks=2, num_microbatches=4, **changes):
    """One layer for each stage, `chunks` on each group of devices."""
    num_stages = len(devices) * chunks
    depths = changes.pop("depths", None) or warmup_depths(
        Schedule.INTERLEAVED, num_stages, num_microbatches, chunks=chunks
    )
    stages = (
        replace(stage(index, index + 1, *devices[index % len(devices)], depth=depths[index]), **changes)
        for index in range(num_stages)
    )
    return plan(*stages, schedule=Schedule.INTERLEAVED, chunks=chunks, num_microbatches=num_microbatches)


TURNS = problem(schedules=(Schedule.INTERLEAVED,))


def test_stages_may_take_turns_on_equal_device_groups():
    assert faults(CostModel(TURNS), turns(("pair/0",), ("pair/1",))) == ()
    assert faults(CostModel(TURNS), turns(("twin-0/0", "twin-0/1"), ("twin-1/0", "twin-1/1"))) == ()


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ((("pair/0",), ("mixed-0/0",)), "stage 1: its device group differs from that of stage 0"),
        ((("twin-0/0",), ("twin-1/0",)), "stage 1: interleaved device groups fill one host after the other, 2 on each"),
    ],
)
def test_groups_that_take_turns_are_alike_and_fill_hosts(devices, words):
    (fault,) = faults(CostModel(TURNS), turns(*devices))
    assert fault.startswith(words)


def test_chunks_are_those_of_the_job():
    single = replace(TURNS, job=replace(TURNS.job, chunks=(2, 3)))
    assert faults(CostModel(single), turns(("pair/0",), chunks=4)) == (
        "4 chunks per device group are not allowed by the job: 2, 3",
    )


def test_only_an_interleaved_plan_has_chunks():
    stages = (stage(0, 2, "pair/0", depth=2), stage(2, 4, "pair/0", depth=1))
    assert "2 chunks per device group, where 1f1b has 1" in found(problem(), *stages, chunks=2)


def test_device_groups_that_take_turns_divide_the_micro_batches():
    chosen = replace(TURNS, job=replace(TURNS.job, global_batch=6))
    odd = turns(("pair/0",), ("pair/1",), num_microbatches=3, depths=(1, 1, 1, 1))
    assert faults(CostModel(chosen), odd) == ("3 micro-batches are not a multiple of the 2 device groups",)


def test_stages_on_the_same_devices_recompute_alike():
    legal = turns(("pair/0",), ("pair/1",))
    stages = (*legal.stages[:3], replace(legal.stages[3], recompute=True))
    mixed = replace(legal, pipelines=(Pipeline(stages=stages),))
    assert "stage 3: recomputes, unlike stage 1 on the same devices" in faults(CostModel(TURNS), mixed)


@pytest.mark.parametrize(
    ("memory_bytes", "words"),
    [(96.0, ()), (95.0, tuple(f"stage {index}: needs 96 B of memory and has 95 B" for index in range(2)))],
)
def test_stages_on_the_same_devices_need_room_together(memory_bytes, words):
    """One device runs the stages x and y of two layers: x1 y1 Y1 x2 X1 y2 Y2 x3 ..., capitals for backwards.

    At most two micro-batches are held at a time, of one stage or of both: 2 x 2 x 2 x 10 bytes, and 16 for all layers.
    """
    depths = warmup_depths(Schedule.INTERLEAVED, 2, 4, chunks=2)
    stages = [stage(2 * index, 2 * index + 2, "pair/0", depth=depths[index]) for index in range(2)]
    chosen = problem(schedules=(Schedule.INTERLEAVED,), recompute=Recompute.NEVER, memory_bytes=memory_bytes)
    assert found(chosen, *stages, schedule=Schedule.INTERLEAVED, chunks=2) == words


@settings(max_examples=80)
@given(small=problems(max_layers=6, interleaved=True))
def test_every_plan_of_the_enumeration_is_legal(small):
    costs = CostModel(small)
    plans = list(itertools.islice(all_plans(small, costs), 0, 300, 5))
    assume(plans)
    assert [faults(costs, plan) for plan in plans] == [()] * len(plans)


@settings(max_examples=60)
@given(small=problems(max_layers=5))
def test_what_solvers_find_is_legal(small):
    found = [run(small, solver, SolveOptions()).plan for solver in ("even", "greedy")]
    assume(any(found))
    assert all(plan is None or faults(CostModel(small), plan) == () for plan in found)
