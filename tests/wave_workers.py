"""Virtual workers for tests: costs by hand and at random."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from stagecut.planner.core.plan import Stage
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.waves import Carrier, LocalStep
from stagecut.planner.cost.waves.wave_all_reduces import Route, WaveAllReduce
from stagecut.planner.cost.waves.wave_costs import Exchange, WaveCosts, WorkerCosts
from tests.pipelines import random_routes, random_seconds

HOSTS = ("h0", "h1", "h2")


def virtual_worker(
    name: str, cuts: Sequence[int], *, in_flight: int, wave: int | None = None, depths: Sequence[int] | None = None
) -> VirtualWorker:
    """Stages between cuts, with as many minibatches ahead as the planner gives them unless stated."""
    num_stages = len(cuts) - 1
    depths = depths or [min(in_flight, 2 * (num_stages - s) - 1) for s in range(num_stages)]
    stages = tuple(
        Stage(
            start=start,
            stop=stop,
            devices=(f"{name}/{s}",),
            warmup_depth=depths[s],
            forward_micro_batch=1,
            backward_micro_batch=1,
        )
        for s, (start, stop) in enumerate(pairwise(cuts))
    )
    return VirtualWorker(stages=stages, minibatch=1, in_flight=in_flight, wave=wave or in_flight)


def worker_costs(
    worker: VirtualWorker,
    *,
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    update_s: Sequence[float] | float = 0.0,
    transfer_s: Sequence[float] | float = 0.0,
    forward_links: tuple[Route, ...] | None = None,
    backward_links: tuple[Route, ...] | None = None,
    exchanges: tuple[tuple[Exchange, ...], ...] | None = None,
) -> WorkerCosts:
    """Costs of a worker that exchanges nothing and has all links to itself, unless stated."""
    num_stages = worker.num_stages
    none: tuple[Route, ...] = ((),) * num_stages
    zeros = np.zeros(num_stages)
    return WorkerCosts(
        worker=worker,
        forward_s=np.array(forward_s, dtype=float),
        backward_s=np.array(backward_s, dtype=float),
        update_s=zeros + update_s,
        transfer_s=zeros[1:] + transfer_s,
        transfer_bytes=zeros[1:] + 1.0,
        forward_links=forward_links or none[1:],
        backward_links=backward_links or none[1:],
        static_bytes=zeros,
        saved_bytes=zeros,
        working_bytes=zeros,
        limit_bytes=zeros + np.inf,
        exchanges=exchanges or ((),) * num_stages,
    )


def served(
    worker: VirtualWorker, owners: Sequence[str], *, push_s: float = 0.0, pull_s: float = 0.0
) -> tuple[tuple[Exchange, ...], ...]:
    """Exchanges of a worker's stages with the owners of its layers, over links of their own."""
    return tuple(
        tuple(
            Exchange(
                owner=o, push_s=push_s, pull_s=pull_s, push_links=(), pull_links=(), push_bytes=1.0, pull_bytes=1.0
            )
            for o in dict.fromkeys(owners[stage.start : stage.stop])
        )
        for stage in worker.stages
    )


def all_reduces(
    plan: WavePlan, seconds: Sequence[float], routes: Sequence[Route] | None = None
) -> tuple[WaveAllReduce, ...]:
    """The all-reduces of a plan, by runs of layers, over links of their own unless stated."""
    runs = plan.shared_runs()
    return tuple(
        WaveAllReduce(
            layers=run,
            stages=tuple(worker.stage_with(run[0]) for worker in plan.workers),
            seconds=own_s,
            links=route,
            crossing_bytes=0.0,
        )
        for run, own_s, route in zip(runs, seconds, routes or ((),) * len(runs), strict=False)
    )


def random_wave_costs(
    rng: np.random.Generator, *, carrier: Carrier, local_step: LocalStep, clock_distance: int, names: int, style: str
) -> WaveCosts:
    """Up to three unlike workers of up to four layers; messages use up to two of so many links."""
    num_layers = int(rng.integers(1, 5))
    workers = tuple(
        _random_worker(rng, f"w{number}", num_layers, local_step=local_step) for number in range(rng.integers(1, 4))
    )
    is_served = carrier is Carrier.PARAMETER_SERVER
    owners = tuple(rng.choice(HOSTS, num_layers).tolist()) if is_served else ()
    plan = WavePlan(
        workers=workers, clock_distance=clock_distance, local_step=local_step, carrier=carrier, owners=owners
    )
    has_others = len(workers) > 1
    costs = tuple(
        _random_worker_costs(
            rng,
            worker,
            owners=owners if is_served and has_others else (),
            names=names,
            style=style,
        )
        for worker in workers
    )
    routes = random_routes(rng, num_layers, names=names)
    seconds = random_seconds(rng, num_layers, style).tolist()
    reduces = all_reduces(plan, seconds, routes) if has_others and not is_served else ()
    return WaveCosts(plan=plan, workers=costs, all_reduces=reduces)


def _random_worker(rng: np.random.Generator, name: str, num_layers: int, *, local_step: LocalStep) -> VirtualWorker:
    inner = [layer for layer in range(1, num_layers) if rng.random() < 0.6]
    in_flight, wave = int(rng.integers(1, 5)), None
    if local_step is LocalStep.MINIBATCH and rng.random() < 0.3:
        wave = in_flight + int(rng.integers(1, 4))
    depths = None
    if local_step is LocalStep.WAVE or rng.random() < 0.5:
        depths = sorted(rng.integers(1, in_flight + 1, len(inner) + 1).tolist(), reverse=True)
    return virtual_worker(name, [0, *inner, num_layers], in_flight=in_flight, wave=wave, depths=depths)


def _random_worker_costs(
    rng: np.random.Generator, worker: VirtualWorker, *, owners: Sequence[str], names: int, style: str
) -> WorkerCosts:
    num = worker.num_stages
    return worker_costs(
        worker,
        forward_s=random_seconds(rng, num, style),
        backward_s=random_seconds(rng, num, style),
        update_s=random_seconds(rng, num, style),
        transfer_s=random_seconds(rng, num - 1, style),
        forward_links=random_routes(rng, num - 1, names=names),
        backward_links=random_routes(rng, num - 1, names=names),
        exchanges=tuple(
            tuple(
                Exchange(
                    owner=owner,
                    push_s=float(random_seconds(rng, 1, style)[0]),
                    pull_s=float(random_seconds(rng, 1, style)[0]),
                    push_links=random_routes(rng, 1, names=names)[0],
                    pull_links=random_routes(rng, 1, names=names)[0],
                    push_bytes=1.0,
                    pull_bytes=1.0,
                )
                for owner in dict.fromkeys(owners[stage.start : stage.stop])
            )
            for stage in worker.stages
        ),
    )


def pushing(*pushes: tuple[float, str] | tuple[float, str, str]) -> WaveCosts:
    """Workers of one stage: when the update of their first minibatch is ready, and the links over which they push it
    for 4 s.
    """
    workers = tuple(virtual_worker(f"w{number}", [0, 1], in_flight=1) for number in range(len(pushes)))
    costs = []
    for own, (ready_s, *links) in zip(workers, pushes, strict=True):
        exchange = replace(served(own, ("h0",), push_s=4.0, pull_s=0.0)[0][0], push_links=tuple(links))
        costs.append(worker_costs(own, forward_s=[0.0], backward_s=[ready_s], exchanges=((exchange,),)))
    return WaveCosts(plan=WavePlan(workers=workers, owners=("h0",)), workers=tuple(costs))
