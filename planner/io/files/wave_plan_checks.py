"""Consistency checks between the parts of a plan file of virtual workers, apart from the times."""

from collections.abc import Iterator

from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_plan import deep_stages, waits_for_waves
from stagecut.planner.core.waves import Carrier
from stagecut.planner.io.documents.complaints import nearest, shorten
from stagecut.planner.io.documents.tree import Document
from stagecut.planner.io.files.chain_checks import LocatedFault, StageFault, chain_faults, device_faults
from stagecut.planner.io.files.wave_plan_entry import VirtualWorkerEntry, WavePlanEntry, WavePlanFileEntry


def check_wave_plan(entry: WavePlanFileEntry, document: Document, problem: Problem) -> None:
    """Report where a plan contradicts its own inputs."""
    for steps, message in _faults(entry, problem):
        node = document.root.at(*steps) or document.root
        document.complaints.add(node.line, node.where, message)


def _faults(entry: WavePlanFileEntry, problem: Problem) -> Iterator[LocatedFault]:
    plan, cluster = entry.plan, problem.cluster
    if problem.job.waves is None:
        yield ("inputs", "job"), "must have the key waves: plan.synchronisation is wsp"
    names = [layer.name for layer in problem.model.layers]
    for number, worker in enumerate(plan.workers):
        for steps, fault in (*chain_faults(worker.stages, names), *_depth_faults(plan, worker)):
            yield ("plan", "workers", number, "stages", *steps), fault
    named = [
        (("plan", "workers", number, "stages", index, "device"), stage.device)
        for number, worker in enumerate(plan.workers)
        for index, stage in enumerate(worker.stages)
    ]
    yield from device_faults(named, cluster)
    hosts = [name for index in range(len(cluster.servers)) for name in cluster.host_names(index)]
    yield from _owner_faults(plan, hosts, num_layers=len(names))
    yield from _prediction_faults(entry)


def _depth_faults(plan: WavePlanEntry, worker: VirtualWorkerEntry) -> Iterator[StageFault]:
    """Depths with which stages would wait for each other forever."""
    wave = worker.wave if waits_for_waves(len(plan.workers), plan.local_step) else None
    depths = [stage.warmup_depth for stage in worker.stages]
    for index, most, what in deep_stages(depths, worker.in_flight, wave=wave):
        yield (index, "warmup_depth"), f"must be at most {most}, {what}, got {depths[index]}"


def _owner_faults(plan: WavePlanEntry, hosts: list[str], *, num_layers: int) -> Iterator[LocatedFault]:
    """With parameter servers, every layer belongs to a host of the cluster."""
    place = ("plan", "owners")
    if plan.carrier is not Carrier.PARAMETER_SERVER:
        if plan.owners:
            yield place, f"must be empty with carrier {plan.carrier}, got a list of {len(plan.owners)}"
        return
    if len(plan.owners) != num_layers:
        yield place, f"must be one host per layer, {num_layers}, got {len(plan.owners)}"
    for layer, owner in enumerate(plan.owners):
        if owner not in hosts:
            yield (*place, layer), f"{shorten(owner)} is not a host of the cluster{nearest(owner, hosts)}"


def _prediction_faults(entry: WavePlanFileEntry) -> Iterator[LocatedFault]:
    """Predictions are for the workers and stages of the plan."""
    workers, predicted = entry.plan.workers, entry.predicted.workers
    if len(predicted) != len(workers):
        yield ("predicted", "workers"), f"must be one per worker, {len(workers)}, got {len(predicted)}"
        return
    for number, (worker, stated) in enumerate(zip(workers, predicted, strict=True)):
        if len(stated.stages) != len(worker.stages):
            rule = f"must be one per stage of the worker, {len(worker.stages)}, got {len(stated.stages)}"
            yield ("predicted", "workers", number, "stages"), rule
