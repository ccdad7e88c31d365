"""Small inputs that the tests of files share."""

from dataclasses import replace
from pathlib import Path

import pytest

from stagecut.planner.core.job import WaveChoices
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.schedule import Schedule, warmup_depths
from stagecut.planner.core.share import Share
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.files.cluster import read_cluster
from stagecut.planner.io.files.job import read_job
from stagecut.planner.io.files.plan_file import PlanFile, provenance_of
from stagecut.planner.io.files.plan_statements import Certificate, Prediction, StagePrediction
from stagecut.planner.io.files.profile import read_profile
from stagecut.planner.io.files.wave_plan_file import WavePlanFile
from stagecut.planner.io.files.wave_statements import (
    WaveCertificate,
    WavePrediction,
    WaveStagePrediction,
    WorkerPrediction,
)

TINY = Path(__file__).parents[3] / "examples" / "tiny"


@pytest.fixture(scope="session")
def tiny_problem():
    """The example of the documentation: six layers, two servers with two devices each."""
    return Problem(
        model=read_profile(TINY / "profile.yaml"),
        cluster=read_cluster(TINY / "cluster.yaml"),
        job=read_job(TINY / "job.yaml"),
    )


@pytest.fixture(scope="session")
def tiny_plan_file(tiny_problem):
    """Two stages: layers 0..3 on both fast devices, layers 4 and 5 on one slow device."""
    sizes = {"forward_micro_batch": 4, "backward_micro_batch": 4}
    first = Stage(start=0, stop=4, devices=("fast/0", "fast/1"), replicas=2, warmup_depth=2, **sizes)
    second = Stage(start=4, stop=6, devices=("slow/1",), recompute=True, warmup_depth=1, **sizes)
    stage = StagePrediction(
        forward_s=0.1, backward_s=0.2, transfer_s=1 / 3, sync_s=0.0, update_s=1e-5, memory_bytes=1e9, limit_bytes=16e9
    )
    return PlanFile(
        problem=tiny_problem,
        plan=Plan(
            schedule=Schedule.ONE_F_ONE_B,
            micro_batch=4,
            num_microbatches=8,
            pipelines=(Pipeline(stages=(first, second)),),
        ),
        predicted=Prediction(iteration_s=2.5, stages=(stage, stage)),
        certificate=Certificate(
            status=Status.FEASIBLE, solver="milp", objective_s=2.5, bound_s=2.4, gap=0.04, seconds=1.25
        ),
        provenance=provenance_of(tiny_problem, {"gap": 1e-4, "time_limit_s": None, "threads": 2}, seed=7),
    )


@pytest.fixture(scope="session")
def turns_plan_file(tiny_plan_file):
    """Two pipelines of a fast and a slow device each, on which two stages take turns: layers 0, 1, 2 and 3 to 5.

    Two device groups run 4 micro-batches of 4 samples.
    """
    ends, depths = (0, 1, 2, 3, 6), warmup_depths(Schedule.INTERLEAVED, 4, 4, chunks=2)
    pipelines = tuple(
        Pipeline(
            stages=tuple(
                Stage(
                    start=ends[index],
                    stop=ends[index + 1],
                    devices=((f"fast/{number}", f"slow/{number}")[index % 2],),
                    warmup_depth=depths[index],
                    forward_micro_batch=4,
                    backward_micro_batch=4,
                )
                for index in range(4)
            )
        )
        for number in range(2)
    )
    plan = Plan(
        schedule=Schedule.INTERLEAVED,
        micro_batch=4,
        num_microbatches=4,
        pipelines=pipelines,
        share=Share(num_pipelines=2, host_splits=(1, 1)),
        chunks=2,
    )
    stages = (tiny_plan_file.predicted.stages[0],) * 4
    return replace(tiny_plan_file, plan=plan, predicted=replace(tiny_plan_file.predicted, stages=stages))


@pytest.fixture(scope="session")
def wave_plan_file(tiny_problem):
    """Two virtual workers: layers 0..3 on a fast and 4, 5 on a slow device; all six layers on the other fast one."""

    def stage(start, stop, device, depth):
        sizes = {"forward_micro_batch": 4, "backward_micro_batch": 4}
        return Stage(start=start, stop=stop, devices=(device,), warmup_depth=depth, **sizes)

    mixed = VirtualWorker(stages=(stage(0, 4, "fast/0", 2), stage(4, 6, "slow/0", 1)), minibatch=4, in_flight=3, wave=2)
    alone = VirtualWorker(stages=(stage(0, 6, "fast/1", 1),), minibatch=4, in_flight=1, wave=3)
    job = replace(tiny_problem.job, global_batch=4, micro_batches=(4,), waves=WaveChoices(clock_distance=1))
    problem = replace(tiny_problem, job=job)
    predicted = WaveStagePrediction(
        forward_s=0.1,
        backward_s=0.2,
        transfer_s=1 / 3,
        update_s=1e-5,
        push_s=0.01,
        pull_s=0.02,
        all_reduce_s=0.0,
        weight_versions=3,
        memory_bytes=1e9,
        limit_bytes=float("inf"),
    )
    workers = (WorkerPrediction(stages=(predicted, predicted)), WorkerPrediction(stages=(predicted,)))
    return WavePlanFile(
        problem=problem,
        plan=WavePlan(
            workers=(mixed, alone), clock_distance=1, owners=("fast", "fast", "slow", "slow", "slow", "fast")
        ),
        predicted=WavePrediction(samples_per_s=12.5, s_local=2, s_global=7, workers=workers),
        certificate=WaveCertificate(
            status=Status.FEASIBLE, solver="optimal", samples_per_s=12.5, bound_samples_per_s=12.75, gap=0.25 / 12.75
        ),
        provenance=provenance_of(problem, {"gap": 1e-4}, seed=7),
    )


@pytest.fixture
def complaints_of():
    """Complaints that reading a text raises, without the name of the file."""

    def read(reader, text):
        with pytest.raises(BadInputError) as caught:
            reader(parse_document(text, file="f"))
        return [complaint.removeprefix("f:") for complaint in caught.value.complaints]

    return read
