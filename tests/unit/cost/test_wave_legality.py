"""Every rule of plans of virtual workers, broken once.

Four layers of 1 s forward and 2 s backward, each with 1 byte of weights in half precision, so half a parameter; 2 + 2 +
4 bytes per parameter stay in memory, 10 bytes are saved per sample. Hosts `pair-0` and `pair-1` have two devices each.
"""

from dataclasses import replace

import pytest

from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Server
from stagecut.planner.core.job import Job, Optimizer, Recompute, WaveChoices
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.plan import Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.waves import Carrier, LocalStep, ShardPlacement
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.cost.waves.wave_legality import wave_faults

TIMES = TimeTable(device_type="gpu", samples=(1,), forward_s=(1.0,), backward_s=(2.0,))
OPTIMIZER = Optimizer(name="bytes", weight_bytes=2.0, gradient_bytes=2.0, state_bytes=4.0)


def model(*, memory_bytes=200.0, recompute=Recompute.AUTO):
    layers = tuple(
        Layer(name=f"layer{i}", params_bytes=1.0, saved_bytes=10.0, output_bytes=1.0, times=(TIMES,)) for i in range(4)
    )
    gpu = DeviceType(name="gpu", peak_flops_per_s=(), memory_bytes=memory_bytes)
    pair = Server(name="pair", islands=(Island(device_type="gpu", count=2),), count=2)
    return WaveCostModel(
        Problem(
            model=ModelProfile(name="four", layers=layers),
            cluster=Cluster(name="small", device_types=(gpu,), servers=(pair,)),
            job=Job(global_batch=2, optimizer=OPTIMIZER, micro_batches=(2,), recompute=recompute, waves=WaveChoices()),
        )
    )


def stage(start, stop, device, depth, **changes):
    sizes = {"forward_micro_batch": 2, "backward_micro_batch": 2} | changes
    return Stage(start=start, stop=stop, devices=(device,), warmup_depth=depth, **sizes)


def worker(first, second, *, cut=2, **changes):
    chosen = {"minibatch": 2, "in_flight": 2, "wave": 2} | changes
    return VirtualWorker(stages=(stage(0, cut, first, 2), stage(cut, 4, second, 1)), **chosen)


WORKERS = (worker("pair-0/0", "pair-1/0"), worker("pair-0/1", "pair-1/1"))
OWNERS = ("pair-0", "pair-0", "pair-1", "pair-1")
PLAN = WavePlan(workers=WORKERS, owners=OWNERS)


def found(plan=PLAN, *, costs=None, **choices):
    return wave_faults(costs or model(), plan, WaveChoices(**choices))


def test_a_plan_of_the_search_space_has_no_faults():
    assert found() == ()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"clock_distance": 1}, "clock distance 1, where the job asks for 0"),
        ({"local_step": LocalStep.WAVE}, "local step wave, where the job asks for minibatch"),
        (
            {"carrier": Carrier.DELAYED_ALL_REDUCE, "owners": ()},
            "carrier delayed-all-reduce, where the job asks for parameter-server",
        ),
        ({"shards": ShardPlacement.LOCAL}, "shards local, where the job asks for spread"),
    ],
)
def test_the_job_chooses_the_rule(changes, fault):
    assert found(replace(PLAN, **changes)) == (fault,)


def test_the_job_chooses_the_number_of_workers_and_minibatches_in_flight():
    assert found(num_workers=1) == ("2 virtual workers, where the job asks for 1",)
    assert found(in_flight=3) == tuple(
        f"worker {number}: 2 minibatches in flight, where the job asks for 3" for number in (0, 1)
    )


def test_waves_are_equally_long_unless_the_job_asks_for_proportion():
    plan = replace(PLAN, workers=(WORKERS[0], replace(WORKERS[1], wave=3)))
    assert found(plan, proportional=True) == ()
    unlike = "worker 1: waves of 3 minibatches, unlike the 2 of worker 0, where the job asks for equal ones"
    assert found(plan) == (unlike, "worker 1: waves of 3 minibatches, unlike the 2 in flight")


def test_minibatches_have_the_jobs_size():
    stages = tuple(replace(each, forward_micro_batch=1, backward_micro_batch=1) for each in WORKERS[1].stages)
    plan = replace(PLAN, workers=(WORKERS[0], replace(WORKERS[1], stages=stages, minibatch=1)))
    assert found(plan) == ("worker 1: minibatches of 1, where the job has 2",)


def with_depths(first, second):
    """The plan with other depths of worker 1, which has two minibatches in flight."""
    stages = tuple(replace(own, warmup_depth=n) for own, n in zip(WORKERS[1].stages, (first, second), strict=True))
    return replace(PLAN, workers=(WORKERS[0], replace(WORKERS[1], stages=stages)))


def test_depths_may_be_any_that_do_not_rise_along_the_pipeline():
    assert found(with_depths(2, 2)) == found(with_depths(2, 1)) == found(with_depths(1, 1)) == ()


def test_n_m_left_open_has_a_limit():
    """4 S - 3 = 5 for two stages."""
    workers = tuple(replace(own, in_flight=6, wave=6) for own in PLAN.workers)
    expected = "6 minibatches in flight, where workers of up to 2 stages have at most 5"
    assert expected in found(replace(PLAN, workers=workers))


def test_messages_have_no_sizes_of_their_own():
    stages = (replace(WORKERS[1].stages[0], forward_message=1), WORKERS[1].stages[1])
    plan = replace(PLAN, workers=(WORKERS[0], replace(WORKERS[1], stages=stages)))
    assert found(plan) == ("worker 1: stage 0: has message sizes of its own",)


def test_workers_hold_the_whole_model():
    stages = (replace(WORKERS[0].stages[0], stop=3), replace(WORKERS[0].stages[1], start=3, stop=5))
    plan = WavePlan(workers=(replace(WORKERS[0], stages=stages),), owners=("pair-0",) * 5)
    assert found(plan) == ("the last stages end at layer 5, the model at 4",)


def test_unknown_devices_and_owners_are_named():
    plan = replace(PLAN, workers=(WORKERS[0], worker("pair-7/1", "pair-1/1")), owners=("pair-0",) * 3 + ("moon",))
    device, owner = found(plan)
    assert device.startswith("worker 1: stage 0: devices must be devices of cluster 'small', got 'pair-7/1'")
    assert owner == "owner 'moon' is no host of cluster 'small'"


def test_local_shards_are_owned_where_most_workers_hold_them():
    """Layers 2 and 3 are held by two workers on pair-1."""
    plan = replace(PLAN, shards=ShardPlacement.LOCAL, owners=("pair-0",) * 3 + ("pair-1",))
    held = "held by 0 workers there and by 2 on 'pair-1'"
    assert found(plan, shards=ShardPlacement.LOCAL) == (f"layer 2: owned by 'pair-0', {held}, where shards are local",)


def test_a_stage_over_memory_is_rejected_with_the_numbers():
    """First stage: one parameter with 2 + 2 + 4 bytes, another version (2) and the sum to be pushed (2), then two
    minibatches of two samples, each with 20 bytes saved: 12 + 2 x 40 = 92 bytes. The last one holds one: 52 bytes.
    """
    for number in (0, 1):
        assert f"worker {number}: stage 0: needs 92 B of memory and has 60 B" in found(costs=model(memory_bytes=60.0))
    assert found(costs=model(memory_bytes=92.0)) == ()


@pytest.mark.parametrize(
    ("policy", "recompute", "fault"),
    [
        (Recompute.NEVER, True, "recomputes, where the job says never"),
        (Recompute.ALWAYS, False, "does not recompute, where the job says always"),
        (Recompute.AUTO, True, "recomputes although it fits in memory without"),
    ],
)
def test_stages_recompute_as_the_job_says(policy, recompute, fault):
    stages = tuple(replace(each, recompute=recompute) for each in WORKERS[0].stages)
    plan = WavePlan(workers=(replace(WORKERS[0], stages=stages),), owners=OWNERS)
    assert found(plan, costs=model(recompute=policy)) == tuple(f"worker 0: stage {index}: {fault}" for index in (0, 1))
