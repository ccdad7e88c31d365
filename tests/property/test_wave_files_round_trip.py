"""Plans of virtual workers written to text and read back are the same plans."""

import dataclasses

from hypothesis import given, reject, settings
from hypothesis import strategies as st

from stagecut.planner.core.job import AUTO, WaveChoices
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.plan import Stage
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.waves import Allocation, Carrier, LocalStep, ShardPlacement
from stagecut.planner.io.files import job
from stagecut.planner.io.files.plan_file import provenance_of
from stagecut.planner.io.files.wave_plan_file import WavePlanFile, any_plan_file_of, to_tree
from stagecut.planner.io.files.wave_statements import (
    WaveCertificate,
    WavePrediction,
    WaveStagePrediction,
    WorkerPrediction,
)
from tests.property.test_files_round_trip import amounts, check_round_trip, clusters, jobs, limits, names, profiles

choices = st.builds(
    WaveChoices,
    clock_distance=st.integers(0, 40),
    in_flight=st.just(AUTO) | st.integers(1, 9),
    num_workers=st.just(AUTO) | st.integers(1, 9),
    allocation=st.sampled_from(Allocation),
    shards=st.sampled_from(ShardPlacement),
    carrier=st.sampled_from(Carrier),
    local_step=st.sampled_from(LocalStep),
    proportional=st.booleans(),
)


@st.composite
def wave_jobs(draw, precision):
    size = draw(st.integers(1, 64))
    plain = draw(jobs(precision, any_pipelines=False))
    return dataclasses.replace(plain, global_batch=size, micro_batches=(size,), waves=draw(choices))


@st.composite
def workers(draw, devices, *, num_layers):
    """A virtual worker on some devices, which are taken from the list."""
    num_stages = draw(st.integers(1, min(num_layers, len(devices))))
    cuts = draw(st.permutations(range(1, num_layers)))[: num_stages - 1]
    ends, minibatch, in_flight = [0, *sorted(cuts), num_layers], draw(st.integers(1, 64)), draw(st.integers(1, 9))
    wave = draw(st.integers(1, 9))
    most = min(in_flight, wave)
    depths = sorted(draw(st.lists(st.integers(1, most), min_size=num_stages, max_size=num_stages)), reverse=True)
    stages = tuple(
        Stage(
            start=ends[index],
            stop=ends[index + 1],
            devices=(devices.pop(),),
            recompute=draw(st.booleans()),
            warmup_depth=depths[index],
            forward_micro_batch=minibatch,
            backward_micro_batch=minibatch,
        )
        for index in range(num_stages)
    )
    return VirtualWorker(stages=stages, minibatch=minibatch, in_flight=in_flight, wave=wave)


@st.composite
def wave_plans(draw, problem):
    num_layers, local_step = problem.model.num_layers, draw(st.sampled_from(LocalStep))
    devices = draw(st.permutations([device.name for device in problem.cluster.devices()]))
    hosts = [name for index in range(len(problem.cluster.servers)) for name in problem.cluster.host_names(index)]
    carrier = draw(st.sampled_from(Carrier))
    made = []
    while devices and len(made) < 3:
        made.append(draw(workers(devices, num_layers=num_layers)))
    return WavePlan(
        workers=tuple(made),
        clock_distance=draw(st.integers(0, 40)),
        local_step=local_step,
        carrier=carrier,
        shards=draw(st.sampled_from(ShardPlacement)),
        owners=tuple(draw(st.sampled_from(hosts)) for _ in range(num_layers))
        if carrier is Carrier.PARAMETER_SERVER
        else (),
    )


@st.composite
def wave_plan_files(draw):
    precision = draw(st.sampled_from(Precision))
    model, cluster, job_ = draw(profiles(precision)), draw(clusters(every_peak=True)), draw(wave_jobs(precision))
    try:
        problem = Problem(model=model, cluster=cluster, job=job_)
    except BadInputError:  # times on other devices only, and nothing to estimate others from
        reject()
    plan = draw(wave_plans(problem))
    stage = st.builds(
        WaveStagePrediction,
        **{field.name: amounts for field in dataclasses.fields(WaveStagePrediction)}
        | {"limit_bytes": limits, "weight_versions": st.integers(1, 9)},
    )
    return WavePlanFile(
        problem=problem,
        plan=plan,
        predicted=WavePrediction(
            samples_per_s=draw(amounts | st.just(float("inf"))),
            s_local=draw(st.integers(0, 99)),
            s_global=draw(st.integers(0, 99)),
            workers=tuple(
                WorkerPrediction(stages=tuple(draw(stage) for _ in worker.stages)) for worker in plan.workers
            ),
        ),
        certificate=WaveCertificate(
            status=draw(st.sampled_from((Status.OPTIMAL, Status.FEASIBLE, Status.INTERRUPTED))),
            solver=draw(names),
            samples_per_s=draw(amounts | st.just(float("inf"))),
            bound_samples_per_s=draw(st.none() | amounts),
            gap=draw(st.none() | amounts),
        ),
        provenance=provenance_of(problem, {}, seed=draw(st.integers(0, 2**63 - 1))),
    )


@given(wave_jobs(Precision.FP16))
@settings(max_examples=25)
def test_job_with_waves_reads_back_equal(data):
    check_round_trip(data, job.to_tree, job.job_of)


@given(wave_plan_files())
@settings(max_examples=25)
def test_plan_file_of_workers_reads_back_equal(data):
    check_round_trip(data, to_tree, any_plan_file_of)
