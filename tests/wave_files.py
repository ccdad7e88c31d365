"""Plan files of virtual workers for the tiny example, without a search."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from stagecut.planner.core.job import WaveChoices
from stagecut.planner.core.plan import Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.waves import Carrier, LocalStep, ShardPlacement
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.files.cluster import read_cluster
from stagecut.planner.io.files.job import read_job
from stagecut.planner.io.files.plan_file import provenance_of
from stagecut.planner.io.files.profile import read_profile
from stagecut.planner.io.files.wave_plan_file import WavePlanFile, to_tree
from stagecut.planner.io.files.wave_statements import (
    WaveCertificate,
    WavePrediction,
    WaveStagePrediction,
    WorkerPrediction,
)
from stagecut.planner.simulator.waves.steady import steady_state

TINY = Path(__file__).parents[1] / "examples" / "tiny"
LOCAL, SPREAD = ("fast",) * 6, ("fast", "fast", "slow", "slow", "slow", "slow")


def tiny_problem(**waves: object) -> Problem:
    """The example of the documentation, to be trained through waves with minibatches of 4."""
    job = replace(read_job(TINY / "job.yaml"), global_batch=4, micro_batches=(4,), waves=WaveChoices(**waves))
    return Problem(model=read_profile(TINY / "profile.yaml"), cluster=read_cluster(TINY / "cluster.yaml"), job=job)


def worker(
    devices: tuple[str, ...], cuts: tuple[int, ...], *, in_flight: int, wave: int, flushes: bool, minibatch: int = 4
) -> VirtualWorker:
    """Stages between cuts, as deep as plans have them."""
    num_stages = len(devices)

    def depth(stage: int) -> int:
        return min(in_flight, num_stages - stage if flushes else 2 * (num_stages - stage) - 1)

    stages = tuple(
        Stage(
            start=start,
            stop=stop,
            devices=(device,),
            warmup_depth=depth(index),
            forward_micro_batch=minibatch,
            backward_micro_batch=minibatch,
        )
        for index, (device, (start, stop)) in enumerate(zip(devices, pairwise(cuts), strict=True))
    )
    return VirtualWorker(stages=stages, minibatch=minibatch, in_flight=in_flight, wave=wave)


def tiny_plan(
    *,
    in_flight: int = 2,
    clock_distance: int = 1,
    local_step: LocalStep = LocalStep.MINIBATCH,
    owners: tuple[str, ...] = LOCAL,
    unlike: bool = True,
) -> WavePlan:
    """Two workers: two fast devices beside two slow ones, or a fast and a slow device each."""
    flushes = local_step is LocalStep.WAVE
    devices = (("fast/0", "fast/1"), ("slow/0", "slow/1")) if unlike else (("fast/0", "slow/0"), ("fast/1", "slow/1"))
    workers = tuple(
        worker(own, (0, 3 if unlike else 4, 6), in_flight=in_flight, wave=in_flight, flushes=flushes) for own in devices
    )
    return WavePlan(
        workers=workers,
        clock_distance=clock_distance,
        local_step=local_step,
        carrier=Carrier.PARAMETER_SERVER if owners else Carrier.DELAYED_ALL_REDUCE,
        shards=ShardPlacement.SPREAD if len(set(owners)) > 1 else ShardPlacement.LOCAL,
        owners=owners,
    )


def wave_file(problem: Problem, plan: WavePlan) -> WavePlanFile:
    """A plan file that states what the simulator says."""
    costs = WaveCostModel(problem).plan(plan)
    rate = steady_state(costs).samples_per_s
    stage = WaveStagePrediction(
        **dict.fromkeys(("forward_s", "backward_s", "transfer_s", "update_s", "push_s", "pull_s", "all_reduce_s"), 0.0),
        weight_versions=1,
        memory_bytes=0.0,
        limit_bytes=16e9,
    )
    predictions = tuple(WorkerPrediction(stages=(stage,) * own.num_stages) for own in plan.workers)
    return WavePlanFile(
        problem=problem,
        plan=plan,
        predicted=WavePrediction(samples_per_s=rate, s_local=0, s_global=0, workers=predictions),
        certificate=WaveCertificate(status=Status.FEASIBLE, solver="by-hand", samples_per_s=rate),
        provenance=provenance_of(problem, {}, seed=0),
    )


def write_wave_file(path: Path, plan: WavePlan) -> Path:
    """The same, written."""
    path.write_text(format_json(to_tree(wave_file(tiny_problem(), plan))))
    return path
