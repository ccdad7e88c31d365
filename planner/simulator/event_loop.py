"""The event loop: start and end times of the tasks of one iteration, links that several flows share included.

A message or an all-reduce is *ready* once the action before it has ended. It then queues on all shared
links of its route at once, and is served when it is first in every one of these queues:

    start = max(ready, end of the latest task granted on each of its links).

Requests are granted one at a time: everything that needs no shared link is determined first, then
the request with the smallest (ready time, task number) is granted, and so on. Ready times of
grants never decrease, so this is the order of readiness; task numbers break ties.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.borrowed import borrowed
from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.simulator.iteration_graph import NONE, IterationGraph
from stagecut.planner.simulator.routes import Routes

UNKNOWN = -1.0
"""Stands for the end of a task that is not determined yet."""


class Game(NamedTuple):
    """A graph as the loop reads it: one array for each look-up."""

    own: Ints
    """Actions, all-reduces and optimizer steps of each device group, in order."""
    first_own: Ints
    """Those of group d are own[first_own[d]] up to own[first_own[d + 1]], shape (D + 1,)."""
    cell: Ints
    """Where the seconds of each task are, shape (n,)."""
    awaited: Ints
    """The message that an action needs; an all-reduce itself, which may have to wait for a link; shape (n,)."""
    first_message: Ints
    """Task t sends the messages first_message[t] up to first_message[t + 1], shape (n + 1,)."""
    previous: Ints
    """The message before each message in its flow, shape (n,)."""
    receiver: Ints
    """The device group that may wait for each task: the receiver of a message, the own one of an all-reduce; (n,)."""
    flow: Ints
    """Shape (n,)."""


class Deadline(NamedTuple):
    """When an iteration takes too long to be of interest."""

    latest_s: float
    """No plan is played further than it takes to see that it ends no sooner."""
    left_s: Floats
    """Least seconds of each device group, and of the messages on each shared link, if they never waited, and of what
    follows; shape (plans, D + links)."""


NO_DEADLINE = Deadline(math.inf, np.empty((0, 0)))


@lru_cache(maxsize=256)
def game_of(graph: IterationGraph) -> Game:
    """What the loop needs of a graph."""
    tasks, first_message, first_sync = np.arange(graph.num_tasks), graph.num_actions, graph.first_sync
    own = np.delete(tasks, slice(first_message, first_sync))
    group = graph.device[graph.stage[own]]
    order = np.argsort(group, kind="stable")
    step = np.select([graph.kind == TaskKind.SEND_FORWARD, graph.kind == TaskKind.SEND_BACKWARD], [1, -1])
    need = np.where(tasks < first_message, graph.predecessors[:, 1], NONE)
    sender = graph.predecessors[first_message:first_sync, 0]
    return Game(
        own=own[order],
        first_own=np.searchsorted(group[order], np.arange(graph.num_devices + 1)),
        cell=graph.cell,
        awaited=np.where(graph.kind == TaskKind.SYNC, tasks, need),
        first_message=first_message + np.searchsorted(sender, np.arange(graph.num_tasks + 1)),
        previous=np.ascontiguousarray(graph.predecessors[:, 1]),
        receiver=graph.device[graph.stage + step],
        flow=graph.flow,
    )


@lru_cache(maxsize=1024)
def links_of(routes: Routes, num_flows: int) -> Ints:
    """The links of these routes, of no flow if there are no routes, as :func:`play` takes them; shape (1, flows, W)."""
    links = np.full((1, num_flows, max([1, *map(len, routes)])), NONE)
    for flow, route in enumerate(routes):
        links[0, flow, : len(route)] = route
    return links


class Room(NamedTuple):
    """What changes while a plan is played; of D device groups and the shared links."""

    now: Floats
    """End of the latest task of each device group, shape (D,)."""
    at: Ints
    """Its next task, as number in `own`."""
    waiting: Ints
    """The message or all-reduce that it waits for."""
    runnable: Ints
    """Stack of the device groups whose wait is over."""
    ready: Floats
    """Heap of requests: when they are ready."""
    request: Ints
    """And their tasks."""
    free: Floats
    """End of the latest task on each link."""
    left: Floats
    """Least seconds from there to the end of the iteration, by device group, then by link."""


@compiled
def play(game: Game, links: Ints, seconds: Floats, start: Floats, end: Floats, deadline: Deadline) -> Floats:
    """Iteration times of plans in which task t takes `seconds[plan, cell[t]]`, shape (plans,); infinite if too late.

    Links, of shape (plans or 1, flows, W >= 1), are the shared ones of each flow, then `NONE`. Overwrites the start
    times of tasks that use one, shape (n,), and the end times of all tasks, then a zero, shape (n + 1,), with those of
    one plan after another. The end of tasks of device groups that wait for each other forever is `UNKNOWN`.
    """
    num_tasks, num_groups, num_links = len(game.cell), len(game.first_own) - 1, links.max() + 1
    room = Room(
        now=np.empty(num_groups),
        at=np.empty(num_groups, np.int64),
        waiting=np.empty(num_groups, np.int64),
        runnable=np.empty(num_groups + 1, np.int64),
        ready=np.empty(num_tasks),
        request=np.empty(num_tasks, np.int64),
        free=np.empty(num_links),
        left=np.zeros(max(num_groups + num_links, deadline.left_s.shape[1])),
    )
    times = np.empty(len(seconds))
    for plan in range(len(seconds)):
        if deadline.latest_s < np.inf:
            room.left[: deadline.left_s.shape[1]] = deadline.left_s[plan]
        own = links[min(plan, len(links) - 1)]
        times[plan] = _play_one(game, own, seconds[plan], start, end, room, deadline.latest_s)
    return times


@compiled
def _play_one(
    game: Game, links: Ints, duration: Floats, start: Floats, end: Floats, room: Room, latest: float
) -> float:
    """Iteration time of one plan; infinite if it ends no sooner than the latest time.

    Device groups and links do one task at a time, so they have at least their other tasks, and what follows, to come.
    """
    game, links, duration, start, end, room = borrowed((game, links, duration, start, end, room))
    cell, awaited, flow, receiver = game.cell, game.awaited, game.flow, game.receiver
    first_message, own, num_groups = game.first_message, game.own, len(game.first_own) - 1
    now, at, waiting, runnable, left = room.now, room.at, room.waiting, room.runnable, room.left
    ready, request, free = room.ready, room.request, room.free
    end[:], free[:], now[:], waiting[:] = UNKNOWN, 0.0, 0.0, NONE
    end[NONE], num_runnable, num_requests, is_late = 0.0, num_groups, 0, False
    for group in range(num_groups):
        runnable[group], at[group] = group, game.first_own[group]
    while not is_late and (num_runnable > 0 or num_requests > 0):
        # Whoever can run runs first: only then is the earliest request of all known.
        if num_runnable > 0:
            num_runnable -= 1
            group = runnable[num_runnable]
            time, rest = now[group], left[group]
            while at[group] < game.first_own[group + 1]:
                task = own[at[group]]
                need = awaited[task]
                if end[need] == UNKNOWN and (need != task or links[flow[task], 0] != NONE):
                    waiting[group] = need
                    if need == task:
                        num_requests = _push(ready, request, num_requests, time, task)
                    break
                time = max(time, end[need])
                if end[task] == UNKNOWN:
                    time += duration[cell[task]]
                    end[task] = time
                for message in range(first_message[task], first_message[task + 1]):
                    if links[flow[message], 0] != NONE:
                        num_requests = _push(ready, request, num_requests, time, message)
                    else:
                        end[message] = max(time, end[game.previous[message]]) + duration[cell[message]]
                        num_runnable = _wake(waiting, runnable, num_runnable, receiver[message], message)
                rest -= duration[cell[task]]
                at[group] += 1
            now[group], left[group] = time, rest
            is_late = time + rest >= latest
        else:
            task = request[0]
            start[task] = _occupy(free, links[flow[task]], ready[0], duration[cell[task]])
            end[task] = start[task] + duration[cell[task]]
            num_requests = _pop(ready, request, num_requests)
            num_runnable = _wake(waiting, runnable, num_runnable, receiver[task], task)
            if latest < np.inf and task < first_message[-1]:
                is_late = _are_late(left[num_groups:], links[flow[task]], duration[cell[task]], end[task], latest)
    return np.inf if is_late else now.max()  # device groups end with an optimizer step


@compiled
def _are_late(left: Floats, links: Ints, seconds: float, time: float, latest: float) -> bool:
    """Whether the other messages on any of these links end too late, after one of so many seconds that ends now."""
    is_late = False
    for link in links:
        if link != NONE:
            left[link] -= seconds
            is_late |= time + left[link] >= latest
    return is_late


@compiled
def _wake(waiting: Ints, runnable: Ints, size: int, group: int, task: int) -> int:
    """Let a device group run if it waits for the task; returns the size of the stack."""
    if waiting[group] == task:
        runnable[size] = group
        return size + 1
    return size


@compiled
def _occupy(free: Floats, links: Ints, ready: float, seconds: float) -> float:
    """Start of a task that is ready, on the links that it queues for."""
    start = ready
    for link in links:
        if link != NONE:
            start = max(start, free[link])
    for link in links:
        if link != NONE:
            free[link] = start + seconds
    return start


@compiled
def _push(ready: Floats, request: Ints, size: int, time: float, task: int) -> int:
    """Add a request to the heap; returns its size."""
    at = size
    while at > 0:
        parent = (at - 1) // 2
        if ready[parent] < time or (ready[parent] == time and request[parent] < task):
            break
        ready[at], request[at] = ready[parent], request[parent]
        at = parent
    ready[at], request[at] = time, task
    return size + 1


@compiled
def _pop(ready: Floats, request: Ints, size: int) -> int:
    """Take the first request from the heap; returns its size."""
    size -= 1
    time, task, at, child = ready[size], request[size], 0, 1
    while child < size:
        right = child + 1
        if right < size and (
            ready[right] < ready[child] or (ready[right] == ready[child] and request[right] < request[child])
        ):
            child = right
        if time < ready[child] or (time == ready[child] and task < request[child]):
            break
        ready[at], request[at] = ready[child], request[child]
        at, child = child, 2 * child + 1
    ready[at], request[at] = time, task
    return size
