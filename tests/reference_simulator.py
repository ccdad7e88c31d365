"""The simulator once more, as plainly as possible: one event after another, with dictionaries.

Shares no code with `stagecut.planner.simulator`. It is given action lists [(op, stage, lo, hi), ...] with op
"F" or "B", one list per device group, a function that says how many seconds each task takes, and one
that names the links of each message and all-reduce. It returns start and end of every task by its key:

    ("F" or "B", stage, lo, hi)                    an action
    ("send F" or "send B", stage, lo, hi)          a message, by the stage that sends it
    ("sync", stage), ("update", stage)             all-reduce and optimizer step
"""

import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

Key = tuple
Actions = list[list[tuple[str, int, int, int]]]


@dataclass(frozen=True)
class Span:
    """The start and the end of a task."""

    start: float
    end: float


@dataclass(frozen=True)
class Request:
    """A task that needs links: a message or an all-reduce."""

    key: Key
    rank: tuple
    """(0, device group, position of the action in its list, first sample) or (1, stage)."""
    receiver: int | None = None
    """Device group of a message's receiver."""


@dataclass
class Pipeline:
    """The work to be done, and what has happened so far."""

    actions: Actions
    stages: list[list[int]]
    """Stages of each device group, in ascending order."""
    sends: dict[Key, list[Request]]
    """Messages of each action, first sample first."""
    needs: dict[Key, list[Key]]
    """Messages each action waits for."""
    seconds: Callable[[Key], float]
    shared_links: dict[Key, tuple[str, ...]]
    """Links of a flow, named by the first two items of its keys, that another flow uses too."""
    spans: dict[Key, Span] = field(default_factory=dict)
    position: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Actions done, by device group."""
    free_from: dict = field(default_factory=lambda: defaultdict(float))
    """End of the latest task of each device group and each link."""
    line: list = field(default_factory=list)
    """Heap of (ready time, rank, request): who waits for a shared link."""


def simulate(
    actions: Actions,
    seconds: Callable[[Key], float],
    links: Callable[[Key], tuple[str, ...]],
    sizes: dict[tuple[str, int], int] | None = None,
) -> dict:
    """Start and end of every task of one iteration; `sizes` has the samples per message of (op, sending stage)."""
    sends, needs = _messages(actions, sizes or {})
    shared = _shared_links(1 + max(stage for own in actions for _, stage, _, _ in own), links)
    stages = [sorted({stage for _, stage, _, _ in own}) for own in actions]
    pipeline = Pipeline(actions=actions, stages=stages, sends=sends, needs=needs, seconds=seconds, shared_links=shared)
    runnable = list(range(len(actions)))
    while True:
        while runnable:
            runnable += _play(pipeline, runnable.pop())
        if not pipeline.line:
            break
        runnable += _grant(pipeline)
    for own in stages:
        now = pipeline.spans["sync", own[-1]].end
        for stage in own:
            now = _record(pipeline, ("update", stage), now)
    return pipeline.spans


def iteration_time(spans: dict[Key, Span]) -> float:
    """End of the last task."""
    return max(span.end for span in spans.values())


def _play(pipeline: Pipeline, device: int) -> list[int]:
    """Run actions of a device group until one lacks a message; return the groups that were sent something."""
    receivers = []
    own = pipeline.actions[device]
    while pipeline.position[device] < len(own):
        action = own[pipeline.position[device]]
        arrivals = [pipeline.spans.get(message) for message in pipeline.needs[action]]
        if None in arrivals:
            break
        end = _record(pipeline, action, max([pipeline.free_from[device], *(span.end for span in arrivals)]))
        pipeline.free_from[device] = end
        pipeline.position[device] += 1
        for request in pipeline.sends[action]:
            receivers += _stand_in_line(pipeline, request, end)
        if pipeline.position[device] == len(own):
            receivers += _stand_in_line(pipeline, _all_reduce(pipeline.stages[device][0]), end)
    return receivers


def _all_reduce(stage: int) -> Request:
    return Request(key=("sync", stage), rank=(1, stage))


def _stand_in_line(pipeline: Pipeline, request: Request, ready: float) -> list[int]:
    """Wait for shared links; without any, only for the messages of the same flow."""
    flow = request.key[:2]
    if pipeline.shared_links[flow]:
        heapq.heappush(pipeline.line, (ready, request.rank, request))
        return []
    pipeline.free_from[flow] = _record(pipeline, request.key, max(ready, pipeline.free_from[flow]))
    return _served(pipeline, request)


def _grant(pipeline: Pipeline) -> list[int]:
    """Serve the request that was ready first."""
    ready, _, request = heapq.heappop(pipeline.line)
    links = pipeline.shared_links[request.key[:2]]
    end = _record(pipeline, request.key, max([ready, *(pipeline.free_from[link] for link in links)]))
    for link in links:
        pipeline.free_from[link] = end
    return _served(pipeline, request)


def _served(pipeline: Pipeline, request: Request) -> list[int]:
    """After an all-reduce comes that of the next stage on the same devices; return who was sent a message."""
    if request.receiver is not None:
        return [request.receiver]
    stage = request.key[1]
    own = next(stages for stages in pipeline.stages if stage in stages)
    later = own[own.index(stage) + 1 :]
    return _stand_in_line(pipeline, _all_reduce(later[0]), pipeline.spans[request.key].end) if later else []


def _record(pipeline: Pipeline, key: Key, start: float) -> float:
    end = start + pipeline.seconds(key)
    pipeline.spans[key] = Span(start, end)
    return end


def _messages(
    actions: Actions, sizes: dict[tuple[str, int], int]
) -> tuple[dict[Key, list[Request]], dict[Key, list[Key]]]:
    """A message is what an action has in common with one action of the stage it sends to, unless it has a size.

    One with a size belongs to the action with its last sample, and whoever takes any of its samples waits for it.
    """
    sends, needs = defaultdict(list), defaultdict(list)
    tiles = defaultdict(list)
    for device, own in enumerate(actions):
        for op, stage, lo, hi in own:
            tiles[op, stage].append((lo, hi, device))
    for own in tiles.values():
        own.sort()
    for device, own in enumerate(actions):
        for position, action in enumerate(own):
            op, stage, lo, hi = action
            step = {"F": 1, "B": -1}[op]
            size = sizes.get((op, stage))
            if size is not None:
                last = max(tile[1] for tile in tiles[op, stage])
                for start in range(0, last, size):
                    stop = min(start + size, last)
                    if lo < stop <= hi:
                        key = (f"send {op}", stage, start, stop)
                        takers = _overlapping(tiles[op, stage + step], start, stop)
                        sends[action].append(Request(key=key, rank=(0, device, position, start), receiver=takers[0][2]))
                        for taker in takers:
                            needs[op, stage + step, taker[0], taker[1]].append(key)
                continue
            for first, last, receiver in _overlapping(tiles[op, stage + step], lo, hi):
                key = (f"send {op}", stage, max(lo, first), min(hi, last))
                sends[action].append(Request(key=key, rank=(0, device, position, key[2]), receiver=receiver))
                needs[op, stage + step, first, last].append(key)
    return sends, needs


def _overlapping(tiles: list[tuple[int, int, int]], lo: int, hi: int) -> list[tuple[int, int, int]]:
    """Those of contiguous tiles (first sample, one past the last, device group) that meet [lo, hi)."""
    first = bisect_right(tiles, lo, key=lambda tile: tile[0]) - 1
    found = []
    for tile in tiles[max(first, 0) :]:
        if tile[0] >= hi:
            break
        found.append(tile)
    return found


def _shared_links(num_stages: int, links: Callable[[Key], tuple[str, ...]]) -> dict[Key, tuple[str, ...]]:
    """Links of each flow without those that no other flow uses."""
    flows = [("send F", stage) for stage in range(num_stages - 1)]
    flows += [("send B", stage) for stage in range(1, num_stages)]
    flows += [("sync", stage) for stage in range(num_stages)]
    users = defaultdict(set)
    for flow in flows:
        for link in links(flow):
            users[link].add(flow)
    return {flow: tuple(link for link in links(flow) if len(users[link]) > 1) for flow in flows}
