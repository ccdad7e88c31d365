"""How many more samples per second virtual workers would make with one more unit of a resource."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from stagecut.planner.analysis.wave_prediction import play_waves
from stagecut.planner.analysis.wave_recheck import certified_waves
from stagecut.planner.analysis.what_if import UNCHANGED, searches
from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.plan import Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.io.files.wave_plan_file import WavePlanFile
from stagecut.planner.solvers.diagnosis.extra_units import Unit, WhatIf

WaveSolve = Callable[[str, Problem], WaveResult]
"""Search for a plan: name of the search, problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveWhatIf:
    """The best plan found with one more unit, next to the plan without."""

    what: str
    unit: str
    """Empty for the cluster as it is."""
    planned_samples_per_s: float
    """Of the plan that is explained."""
    result: WaveResult | None
    """None if the job's allocation does not go with the larger cluster."""

    @property
    def gained(self) -> float | None:
        """Relative gain in samples per second; negative where fewer, None without a plan."""
        return self._gain(None if self.result is None else self.result.samples_per_s)

    @property
    def gained_at_most(self) -> float | None:
        """What any plan could gain; None where nothing is proven."""
        return self._gain(None if self.result is None else self.result.bound_samples_per_s)

    def _gain(self, samples_per_s: float | None) -> float | None:
        if samples_per_s is None or not 0 < self.planned_samples_per_s < math.inf:
            return None
        return samples_per_s / self.planned_samples_per_s - 1


def wave_what_ifs(
    plan_file: WavePlanFile, samples_per_s: float, units: Sequence[Unit], solve: WaveSolve
) -> Iterator[WaveWhatIf]:
    """The plan itself, then the best plan found with one more of each unit, or this plan there if none is better.

    A plan that was not proven optimal is first searched for again on the cluster as it is, so that what a longer search
    finds is not credited to a unit.
    """
    problem, plan = plan_file.problem, plan_file.plan
    is_optimal = plan_file.certificate.status is Status.OPTIMAL
    result = certified_waves(plan_file, samples_per_s) if is_optimal else solve(UNCHANGED, problem)
    result = _at_least(plan, problem, result)
    best = result.plan or plan

    def search(what_if: WhatIf) -> WaveResult | None:
        try:
            return _at_least(best, what_if.problem, solve(what_if.name, what_if.problem))
        except BadInputError:
            return None

    for what, unit, found in searches(problem, units, result, search):
        yield WaveWhatIf(what=what, unit=unit, planned_samples_per_s=samples_per_s, result=found)


def _at_least(plan: WavePlan, problem: Problem, result: WaveResult) -> WaveResult:
    """The result, or a known plan if it makes more samples per second in the problem."""
    known = _on(problem.cluster, plan)
    if known is None or result.status is Status.INTERRUPTED:
        return result
    samples_per_s = play_waves(problem, known).timeline.samples_per_s
    if samples_per_s <= (result.samples_per_s or 0.0):
        return result
    return replace(result, status=Status.FEASIBLE, plan=known, samples_per_s=samples_per_s)


def _on(cluster: Cluster, plan: WavePlan) -> WavePlan | None:
    """The plan on another cluster, where a host may have got a number; None if its hosts are not there."""
    hosts = {name for index in range(len(cluster.servers)) for name in cluster.host_names(index)}
    names = {name: name if name in hosts else f"{name}-0" for name in (*plan.owners, *map(_host_of, _devices(plan)))}
    if not hosts.issuperset(names.values()):
        return None

    def moved(stage: Stage) -> Stage:
        (device,) = stage.devices
        host = _host_of(device)
        return replace(stage, devices=(names[host] + device.removeprefix(host),))

    workers = tuple(replace(worker, stages=tuple(map(moved, worker.stages))) for worker in plan.workers)
    return replace(plan, workers=workers, owners=tuple(names[owner] for owner in plan.owners))


def _devices(plan: WavePlan) -> Iterator[str]:
    return (device for worker in plan.workers for device in worker.devices)


def _host_of(device: str) -> str:
    return device.rpartition("/")[0]
