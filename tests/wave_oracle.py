"""Every plan of virtual workers of a tiny problem, simulated."""

from collections.abc import Iterator, Sequence
from itertools import combinations, combinations_with_replacement, permutations, product

from stagecut.planner.core.job import AUTO, Recompute
from stagecut.planner.core.plan import Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.waves import Carrier, LocalStep
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.cost.waves.wave_legality import most_in_flight, wave_faults
from stagecut.planner.simulator.waves.steady import steady_state
from stagecut.planner.workers.rows.owners import owners_of

Pipeline = tuple[tuple[str, ...], tuple[int, ...]]
"""Devices in order, and the stop of each stage."""


def best_by_enumeration(problem: Problem) -> tuple[float, WavePlan | None]:
    """The most samples per second of all allocations, orders, partitions and N_m, and its plan; 0 and None if none."""
    model, best = WaveCostModel(problem), (0.0, None)
    choices = problem.job.waves
    for plan in every_plan(problem):
        if not wave_faults(model, plan, choices):
            found = steady_state(model.plan(plan)).samples_per_s
            if best[1] is None or found > best[0]:
                best = found, plan
    return best


def every_plan(problem: Problem) -> Iterator[WavePlan]:
    """With waves of equal length, owners by the planner's rule, recomputation and depths in all combinations."""
    choices, model = problem.job.waves, WaveCostModel(problem)
    names = [device.name for device in problem.cluster.devices()]
    for team in _teams(names, problem.model.num_layers):
        if choices.num_workers not in {AUTO, len(team)}:
            continue
        for in_flight in _numbers(problem, team):
            per_worker = [_workers(own, in_flight, problem) for own in team]
            for workers in product(*per_worker):
                served = choices.carrier is Carrier.PARAMETER_SERVER
                yield WavePlan(
                    workers=workers,
                    clock_distance=choices.clock_distance,
                    local_step=choices.local_step,
                    carrier=choices.carrier,
                    shards=choices.shards,
                    owners=owners_of(model, workers, choices.shards) if served else (),
                )


def _numbers(problem: Problem, team: Sequence[Pipeline]) -> Iterator[int]:
    """N_m as stated, the workers' part of the batch with one step a wave, or all that the longest worker can use."""
    choices, job = problem.job.waves, problem.job
    if choices.in_flight != AUTO:
        yield choices.in_flight
    elif choices.local_step is LocalStep.WAVE:
        number, rest = divmod(job.global_batch // job.micro_batches[0], len(team))
        if rest == 0 and number > 0:
            yield number
    else:
        yield from range(1, 1 + most_in_flight(max(len(devices) for devices, _ in team)))


def _teams(names: Sequence[str], num_layers: int) -> Iterator[list[Pipeline]]:
    """Every way to make workers of some of the devices."""
    if not names:
        return
    first, rest = names[0], names[1:]
    yield from _teams(rest, num_layers)
    for size in range(min(len(rest), num_layers - 1) + 1):
        for others in combinations(rest, size):
            left = [name for name in rest if name not in others]
            for order in permutations((first, *others)):
                for inner in combinations(range(1, num_layers), size):
                    own = (order, (*inner, num_layers))
                    yield [own]
                    yield from ([own, *team] for team in _teams(left, num_layers))


def _workers(pipeline: Pipeline, in_flight: int, problem: Problem) -> list[VirtualWorker]:
    devices, stops = pipeline
    size = problem.job.micro_batches[0]
    modes = {Recompute.NEVER: (False,), Recompute.ALWAYS: (True,), Recompute.AUTO: (False, True)}
    found = []
    every = combinations_with_replacement(range(in_flight, 0, -1), len(devices))
    for recompute, depths in product(product(modes[problem.job.recompute], repeat=len(devices)), every):
        stages = tuple(
            Stage(
                start=start,
                stop=stop,
                devices=(device,),
                recompute=own,
                warmup_depth=depth,
                forward_micro_batch=size,
                backward_micro_batch=size,
            )
            for device, start, stop, depth, own in zip(devices, (0, *stops), stops, depths, recompute, strict=False)
        )
        found.append(VirtualWorker(stages=stages, minibatch=size, in_flight=in_flight, wave=in_flight))
    return found
