"""What the planner expects of virtual workers, and the plan file that records it."""

import math
from dataclasses import dataclass

from stagecut.planner.analysis.throughput import Throughput, throughput_of
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.core.waves import LocalStep, local_staleness
from stagecut.planner.cost.memory_parts import MemoryParts
from stagecut.planner.cost.waves.wave_costs import WaveCostModel, WaveCosts
from stagecut.planner.cost.waves.wave_memory_parts import wave_memory_parts
from stagecut.planner.io.files.plan_statements import Provenance
from stagecut.planner.io.files.wave_plan_file import WavePlanFile
from stagecut.planner.io.files.wave_statements import (
    WaveCertificate,
    WavePrediction,
    WaveStagePrediction,
    WorkerPrediction,
)
from stagecut.planner.simulator.waves.timeline import WaveTimeline, simulate_waves


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedWaves:
    """Virtual workers with their costs, simulated."""

    problem: Problem
    plan: WavePlan
    costs: WaveCosts
    timeline: WaveTimeline

    @property
    def throughput(self) -> Throughput | None:
        """Rates, utilisation and price of all workers; None where nothing takes any time."""
        if math.isinf(self.timeline.samples_per_s):
            return None
        devices = {name for worker in self.plan.workers for stage in worker.stages for name in stage.devices}
        return throughput_of(self.problem, devices, self.timeline.samples_per_s)

    def memory(self, worker: int) -> tuple[MemoryParts, ...]:
        """What fills the memory of the stages of a worker."""
        return wave_memory_parts(WaveCostModel(self.problem), self.plan, self.costs.workers[worker])

    @property
    def s_local(self) -> int:
        """Most of its own updates that a minibatch of any worker computes without."""
        return max(local_staleness(worker.in_flight) for worker in self.plan.workers)

    @property
    def s_global(self) -> int:
        """Most minibatches of another worker that one of any worker computes without; 0 for a single worker."""
        return max(max(self.plan.staleness_of_others(number)) for number in range(len(self.plan.workers)))

    @property
    def weight_versions(self) -> tuple[int, ...]:
        """By worker, how many versions of the weights its stages keep in memory."""
        each_minibatch = self.plan.local_step is LocalStep.MINIBATCH
        return tuple(worker.in_flight if each_minibatch else 1 for worker in self.plan.workers)


def play_waves(problem: Problem, plan: WavePlan) -> PlayedWaves:
    """Derive the costs of a plan and simulate all its workers; raises a BadInputError if they would deadlock."""
    costs = WaveCostModel(problem).plan(plan)
    return PlayedWaves(problem=problem, plan=plan, costs=costs, timeline=simulate_waves(costs))


def predict_waves(played: PlayedWaves) -> WavePrediction:
    """Throughput, staleness, times and memory as a plan file records them."""
    return WavePrediction(
        samples_per_s=played.timeline.samples_per_s,
        s_local=played.s_local,
        s_global=played.s_global,
        workers=tuple(_worker(played, number) for number in range(len(played.plan.workers))),
    )


def wave_plan_file_of(played: PlayedWaves, result: WaveResult, provenance: Provenance) -> WavePlanFile:
    """The plan file of a result, without the duration of the search: equal searches give equal files."""
    return WavePlanFile(
        problem=played.problem,
        plan=played.plan,
        predicted=predict_waves(played),
        certificate=WaveCertificate(
            status=result.status,
            solver=result.solver,
            samples_per_s=played.timeline.samples_per_s,
            bound_samples_per_s=result.bound_samples_per_s,
            gap=result.gap,
        ),
        provenance=provenance,
    )


def _worker(played: PlayedWaves, number: int) -> WorkerPrediction:
    costs, all_reduce_s = played.costs.workers[number], played.costs.all_reduce_s(number)
    transfers_s = [*costs.transfer_s, 0.0]  # the last stage sends nothing
    return WorkerPrediction(
        stages=tuple(
            WaveStagePrediction(
                **{name: float(getattr(costs, name)[index]) for name in ("forward_s", "backward_s", "update_s")},
                transfer_s=float(transfers_s[index]),
                push_s=sum(each.push_s for each in costs.exchanges[index]),
                pull_s=sum(each.pull_s for each in costs.exchanges[index]),
                all_reduce_s=float(all_reduce_s[index]),
                weight_versions=played.weight_versions[number],
                memory_bytes=float(costs.memory_bytes[index]),
                limit_bytes=float(costs.limit_bytes[index]),
            )
            for index in range(costs.worker.num_stages)
        )
    )
