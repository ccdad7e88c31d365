"""Times with contention: links that several flows share serve them first come, first served.

A message or an all-reduce is *ready* once the action before it has ended. It then queues on all shared
links of its route at once, and is served when it is first in every one of these queues:

    start = max(ready, end of the latest task granted on each of its links).

Requests are granted one at a time: everything that needs no shared link is determined first, then
the request with the smallest (ready time, task number) is granted, and so on. Ready times of
grants never decrease, so this is the order of readiness; task numbers break ties.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.simulator.iteration_graph import NONE, IterationGraph
from stagecut.planner.simulator.levels import level_order
from stagecut.planner.simulator.routes import Routes, num_links

UNKNOWN = -1.0
"""Stands for the end of a task that is not determined yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables:
    """A graph as Python lists, in which single look-ups are faster than in arrays."""

    actions: list[range]
    """Actions of each device group, in order."""
    syncs: list[list[int]]
    """All-reduces of each device group, in order."""
    need: list[int]
    """The message that each action waits for."""
    sends: list[tuple[int, ...]]
    """The messages that each action sends."""
    receiver: list[int]
    """The device group that may wait for each task: the receiver of a message, the own one of an all-reduce."""
    previous: list[int]
    """The message before each message in its flow."""


def served_in_order(graph: IterationGraph, routes: Routes, rows_s: Floats) -> list[bool]:
    """For each plan, whether its times without contention are also its times with contention.

    They are if on each shared link, in order of readiness, each task starts no earlier than the
    one before it ended, and the order of tasks that are ready at the same time does not matter.
    `rows_s` holds the end times without contention in the rows of the level order, shape (n + 1, plans).
    """
    good = np.ones(rows_s.shape[1], dtype=bool)
    # On one link: sorted by readiness, start_k >= end_(k-1) for all k means that nobody ever waits there. Equal ready
    # times would be served by task number; that order is irrelevant only if swapping the two changes nothing either.
    for task, action, message in _line_rows(graph, routes):
        ready_s = rows_s[action].T
        order = np.argsort(ready_s, axis=1, kind="stable")
        start_s = np.take_along_axis(np.maximum(ready_s, rows_s[message].T), order, axis=1)
        end_s = np.take_along_axis(rows_s[task].T, order, axis=1)
        ready_s = np.take_along_axis(ready_s, order, axis=1)
        different = (ready_s[:, 1:] > ready_s[:, :-1]) | (start_s[:, :-1] >= end_s[:, 1:])
        good &= np.all((start_s[:, 1:] >= end_s[:, :-1]) & different, axis=1)
        if not good.any():
            break
    return [bool(value) for value in good]


def serve(graph: IterationGraph, routes: Routes, durations_s: Floats) -> tuple[list[float], list[float]]:
    """Play one plan event by event, from the durations of its tasks, shape (n,).

    Returns the start times of tasks that used a shared link, zero for the others, and the end times of all tasks.
    """
    # Plain lists, closed over by both loops below: these take nearly all of the time.
    tables, durations, lines = _tables(graph), durations_s.tolist(), _lines(graph, routes)
    need, sends, receiver, previous = tables.need, tables.sends, tables.receiver, tables.previous
    starts, ends = [0.0] * graph.num_tasks, [UNKNOWN] * graph.num_tasks + [0.0]  # `NONE` ends at zero
    waiting = [NONE] * graph.num_devices  # by device group: the message or all-reduce it is waiting for
    requests: list[tuple[float, int]] = []  # heap of (ready time, task)
    runnable: list[int] = []  # device groups whose wait is over

    def run(device: int) -> Iterator[None]:
        """Run the actions and all-reduces of a device group, pausing for whatever has not been granted yet."""
        now = 0.0
        for action in tables.actions[device]:
            arrival = ends[need[action]]
            if arrival < 0.0:
                waiting[device] = need[action]
                yield
                arrival = ends[need[action]]
            now = (arrival if arrival > now else now) + durations[action]
            ends[action] = now
            for message in sends[action]:
                if lines[message]:
                    heappush(requests, (now, message))
                    continue
                before = ends[previous[message]]
                ends[message] = (before if before > now else now) + durations[message]
                if waiting[receiver[message]] == message:
                    runnable.append(receiver[message])
        for sync in tables.syncs[device]:
            if lines[sync]:
                heappush(requests, (now, sync))
                waiting[device] = sync
                yield
            else:
                ends[sync] = now + durations[sync]
            now = ends[sync]
        yield

    resume = [run(device).__next__ for device in range(graph.num_devices)]
    for start_up in resume:
        start_up()
    free = [0.0] * num_links(routes)
    # Whoever can run runs first: only then is the earliest request of all known.
    while requests or runnable:
        while runnable:
            resume[runnable.pop()]()
        if not requests:
            break
        start, task = heappop(requests)
        for link in lines[task]:
            if free[link] > start:  # noqa: PLR1730 - a call of max costs more than the rest of the loop
                start = free[link]
        starts[task], ends[task] = start, start + durations[task]
        for link in lines[task]:
            free[link] = ends[task]
        if waiting[receiver[task]] == task:
            runnable.append(receiver[task])
    for update, before in enumerate(graph.predecessors[graph.first_update :, 0].tolist(), graph.first_update):
        ends[update] = ends[before] + durations[update]
    return starts, ends[:-1]


@lru_cache
def _tables(graph: IterationGraph) -> _Tables:
    num_actions, first_sync = graph.num_actions, graph.first_sync
    producer = graph.predecessors[num_actions:first_sync, 0]
    cuts = (num_actions + np.searchsorted(producer, np.arange(num_actions + 1))).tolist()
    step = np.select([graph.kind == TaskKind.SEND_FORWARD, graph.kind == TaskKind.SEND_BACKWARD], [1, -1])
    starts = np.searchsorted(graph.device[graph.stage[:num_actions]], np.arange(graph.num_devices + 1)).tolist()
    return _Tables(
        actions=[range(first, stop) for first, stop in itertools.pairwise(starts)],
        syncs=[(first_sync + np.flatnonzero(graph.device == d)).tolist() for d in range(graph.num_devices)],
        need=graph.predecessors[:num_actions, 1].tolist(),
        sends=[tuple(range(first, stop)) for first, stop in itertools.pairwise(cuts)],
        receiver=graph.device[graph.stage + step].tolist(),
        previous=graph.predecessors[:, 1].tolist(),
    )


@lru_cache
def _lines(graph: IterationGraph, routes: Routes) -> list[tuple[int, ...]]:
    """Shared links of each task."""
    by_flow = (*routes, ())  # tasks of no flow have the flow NONE
    return [by_flow[flow] for flow in graph.flow.tolist()]


@lru_cache
def _line_rows(graph: IterationGraph, routes: Routes) -> list[tuple[Ints, Ints, Ints]]:
    """For each shared link, the rows of its tasks, of the actions that make them ready, of the messages they follow."""
    row = level_order(graph).row
    lines = []
    for link in range(num_links(routes)):
        flows = [flow for flow, route in enumerate(routes) if link in route]
        task = np.flatnonzero(np.isin(graph.flow, flows))
        action, message = graph.predecessors[task].T
        lines.append((row[task], row[action], row[message]))
    return lines
