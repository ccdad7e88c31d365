"""Pipelines for simulator tests: costs by hand, costs at random, and the reference played on both."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import Schedule, warmup_depths
from stagecut.planner.cost.plan_costs import Halves, PlanCosts, TaskKind
from stagecut.planner.simulator.iteration_graph import IterationGraph
from tests.reference_simulator import Span, simulate

WORDS = {
    TaskKind.FORWARD: "F",
    TaskKind.BACKWARD: "B",
    TaskKind.SEND_FORWARD: "send F",
    TaskKind.SEND_BACKWARD: "send B",
}


def pipeline_costs(
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    transfer_s: Sequence[float] | float = 0.0,
    *,
    micro_batches: int,
    schedule: Schedule = Schedule.ONE_F_ONE_B,
    micro_batch: int = 1,
    chunks: int = 1,
    **changes: object,
) -> PlanCosts:
    """Costs of a pipeline without shared links, all-reduces and optimizer steps, unless `changes` say otherwise."""
    num_stages = len(forward_s)
    zeros = np.zeros(num_stages)
    costs = PlanCosts(
        variant=Variant(schedule=schedule, micro_batch=micro_batch, num_microbatches=micro_batches, chunks=chunks),
        warmup_depth=np.array(warmup_depths(schedule, num_stages, micro_batches, chunks=chunks)),
        forward_s=np.array(forward_s, dtype=float),
        backward_s=np.array(backward_s, dtype=float),
        transfer_s=np.broadcast_to(np.asarray(transfer_s, dtype=float), (num_stages - 1,)),
        forward_links=((),) * (num_stages - 1),
        backward_links=((),) * (num_stages - 1),
        sync_s=zeros,
        sync_links=((),) * num_stages,
        update_s=zeros,
        static_bytes=zeros,
        saved_bytes=zeros,
        working_bytes=zeros,
        limit_bytes=zeros + np.inf,
    )
    return replace(costs, **changes)


def random_seconds(rng: np.random.Generator, size: int | tuple[int, ...], style: str) -> np.ndarray:
    """Durations: "real"; "whole", so that many things happen at once; "rare", mostly zero; "none", all zero."""
    if style == "real":
        return rng.uniform(0.0, 2.0, size)
    most = {"whole": 3, "rare": 1, "none": 0}[style]
    return (rng.integers(0, 4, size) * most // 3).astype(float)


def random_routes(rng: np.random.Generator, flows: int, *, names: int) -> tuple[tuple[str, ...], ...]:
    """Up to two of so many names for each flow."""
    return tuple(
        tuple(f"link {i}" for i in rng.integers(0, names, rng.integers(0, 3))) if names else () for _ in range(flows)
    )


def random_costs(
    rng: np.random.Generator,
    routes: tuple[tuple[str, ...], ...],
    *,
    schedule: Schedule,
    micro_batches: int,
    style: str,
    chunks: int = 1,
) -> PlanCosts:
    """Costs at random of a pipeline whose flows use these links."""
    num_stages = (len(routes) + 2) // 3
    edges = num_stages - 1
    return pipeline_costs(
        random_seconds(rng, num_stages, style),
        random_seconds(rng, num_stages, style),
        random_seconds(rng, edges, str(rng.choice([style, "none"], p=[0.8, 0.2]))),
        micro_batches=micro_batches,
        schedule=schedule,
        chunks=chunks,
        forward_links=routes[:edges],
        backward_links=routes[edges : 2 * edges],
        sync_links=routes[2 * edges :],
        sync_s=random_seconds(rng, num_stages, style),
        update_s=random_seconds(rng, num_stages, style),
    )


def random_interleaved(rng: np.random.Generator, *, names: int, style: str) -> PlanCosts:
    """Up to five device groups with up to four chunks, and up to four rounds of micro-batches."""
    devices, chunks, rounds = (int(rng.integers(1, most + 1)) for most in (5, 4, 4))
    return random_costs(
        rng,
        random_routes(rng, 3 * devices * chunks - 2, names=names),
        schedule=Schedule.INTERLEAVED,
        micro_batches=devices * rounds,
        style=style,
        chunks=chunks,
    )


def random_hosts(rng: np.random.Generator, costs: PlanCosts) -> PlanCosts:
    """The interleaved plan with its device groups on up to three hosts, whose interfaces carry all-reduces too."""
    num_devices, num_hosts = costs.num_devices, int(rng.integers(1, 4))
    hosts = [stage % num_devices * num_hosts // num_devices for stage in range(costs.num_stages)]

    def route(sender: int, receiver: int) -> tuple[str, ...]:
        return () if sender == receiver else (f"{sender} out", f"{receiver} in")

    return replace(
        costs,
        forward_links=tuple(map(route, hosts, hosts[1:])),
        backward_links=tuple(map(route, hosts[1:], hosts)),
        sync_links=tuple((f"{host} out", f"{host} in") for host in hosts),
        sync_s=costs.sync_s * rng.integers(1, 10),
    )


def textbook_actions(costs: PlanCosts) -> list[list[tuple[str, int, int, int]]]:
    """Action lists of a plan, written down independently of the planner."""
    size = costs.variant.micro_batch
    interleaved = costs.variant.schedule is Schedule.INTERLEAVED
    lists = _interleaved_lists(costs) if interleaved else _plain_lists(costs)
    halved = costs.num_halved or (0,) * costs.num_stages
    return [
        [
            (op, stage, lo, lo + part)
            for op, stage, i in own
            for part in ([size // 2] if op == "F" and i < halved[stage] else [size])
            for lo in range(i * size, (i + 1) * size, part)
        ]
        for own in lists
    ]


def _plain_lists(costs: PlanCosts) -> list[list[tuple[str, int, int]]]:
    """k forwards, then B and F in turn."""
    total = costs.variant.num_microbatches
    lists = []
    for stage, depth in enumerate(costs.warmup_depth):
        first = min(int(depth), total)
        own = [("F", stage, i) for i in range(first)]
        for i in range(total):
            own.append(("B", stage, i))
            if first + i < total:
                own.append(("F", stage, first + i))
        lists.append(own)
    return lists


def _interleaved_lists(costs: PlanCosts) -> list[list[tuple[str, int, int]]]:
    """All forwards and all backwards of a device group in order, then dealt out to the three phases."""
    chunks, total = costs.variant.chunks, costs.variant.num_microbatches
    devices = costs.num_stages // chunks
    lists = []
    for device in range(devices):
        stages = list(range(device, costs.num_stages, devices))
        groups = [range(first, first + devices) for first in range(0, total, devices)]
        forwards = [("F", stage, i) for group in groups for stage in stages for i in group]
        backwards = [("B", stage, i) for group in groups for stage in reversed(stages) for i in group]
        own = []
        for _ in range(min(len(forwards), 2 * (devices - device - 1) + (chunks - 1) * devices)):
            own.append(forwards.pop(0))
        while forwards:
            own += [forwards.pop(0), backwards.pop(0)]
        lists.append(own + backwards)
    return lists


def random_halves(rng: np.random.Generator, costs: PlanCosts, *, style: str) -> PlanCosts:
    """The plan in micro-batches of two samples, most stages with halves no shorter than half the whole."""
    num_stages, most = costs.num_stages, costs.variant.num_microbatches
    longer = 1 + (rng.integers(0, 3, num_stages) / 4 if style != "real" else rng.uniform(0, 0.5, num_stages))
    forward_s = np.where(rng.random(num_stages) < 0.8, longer * costs.forward_s / 2, np.inf)
    sliced = replace(
        costs,
        variant=replace(costs.variant, micro_batch=2),
        halves=Halves(
            forward_s=forward_s,
            transfer_s=longer[1:] * costs.transfer_s / 2,
            num_halved=np.zeros(num_stages, dtype=np.int64),
        ),
    )
    return sliced.sliced(int(rng.integers(0, most + 1)))


def reference_spans(costs: PlanCosts) -> dict[tuple, Span]:
    """The reference simulator played on a plan."""
    seconds = {
        "F": costs.forward_s.tolist(),
        "B": costs.backward_s.tolist(),
        "send F": [*costs.transfer_s.tolist(), None],
        "send B": [None, *costs.transfer_s.tolist()],
        "sync": costs.sync_s.tolist(),
        "update": costs.update_s.tolist(),
    }
    links = {
        "send F": costs.forward_links,
        "send B": ((), *costs.backward_links),
        "sync": costs.sync_links,
    }
    halves_s = {}
    if costs.halves is not None:
        halves_s = {"F": costs.halves.forward_s.tolist(), "send F": costs.halves.transfer_s.tolist()}

    def takes(key: tuple) -> float:
        is_half = key[0] in halves_s and key[3] - key[2] < costs.variant.micro_batch
        return (halves_s if is_half else seconds)[key[0]][key[1]]

    return simulate(textbook_actions(costs), takes, lambda flow: links[flow[0]][flow[1]])


def task_keys(graph: IterationGraph) -> list[tuple]:
    """Keys of a graph's tasks as the reference writes them."""
    columns = zip(graph.kind, graph.stage, graph.lo, graph.hi, strict=True)
    return [
        (WORDS[kind], int(stage), int(lo), int(hi)) if kind in WORDS else (TaskKind(kind).name.lower(), int(stage))
        for kind, stage, lo, hi in columns
    ]
