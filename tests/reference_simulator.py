"""The simulator once more, as plainly as possible: one event after another, with dictionaries.

Shares no code with `planner.simulator`. It is given action lists [(op, lo, hi), ...] with op "F" or
"B", one list per stage, a function that says how many seconds each task takes, and one that names
the links of each message and all-reduce. It returns start and end of every task by its key:

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
Actions = list[list[tuple[str, int, int]]]


@dataclass(frozen=True)
class Span:
    """When a task runs."""

    start: float
    end: float


@dataclass(frozen=True)
class Request:
    """A task that needs links: a message or an all-reduce."""

    key: Key
    rank: tuple
    """(0, stage, position of the action in the stage's list, first sample) or (1, stage)."""
    receiver: int | None = None


@dataclass
class Pipeline:
    """What is to be done, and what has happened so far."""

    actions: list[list[Key]]
    sends: dict[Key, list[Request]]
    """Messages of each action, first sample first."""
    needs: dict[Key, list[Key]]
    """Messages each action waits for."""
    seconds: Callable[[Key], float]
    shared_links: dict[Key, tuple[str, ...]]
    """Links of a flow, named by the first two items of its keys, that another flow uses too."""
    spans: dict[Key, Span] = field(default_factory=dict)
    position: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Actions done, by stage."""
    free_from: dict = field(default_factory=lambda: defaultdict(float))
    """End of the latest task of each stage and each link."""
    line: list = field(default_factory=list)
    """Heap of (ready time, rank, request): who waits for a shared link."""


def simulate(actions: Actions, seconds: Callable[[Key], float], links: Callable[[Key], tuple[str, ...]]) -> dict:
    """Start and end of every task of one iteration."""
    keys = [[(op, stage, lo, hi) for op, lo, hi in own] for stage, own in enumerate(actions)]
    sends, needs = _messages(keys)
    shared = _shared_links(len(actions), links)
    pipeline = Pipeline(actions=keys, sends=sends, needs=needs, seconds=seconds, shared_links=shared)
    runnable = list(range(len(actions)))
    while True:
        while runnable:
            runnable += _play(pipeline, runnable.pop())
        if not pipeline.line:
            break
        runnable += _grant(pipeline)
    for stage in range(len(actions)):
        _record(pipeline, ("update", stage), pipeline.spans["sync", stage].end)
    return pipeline.spans


def iteration_time(spans: dict[Key, Span]) -> float:
    """End of the last task."""
    return max(span.end for span in spans.values())


def _play(pipeline: Pipeline, stage: int) -> list[int]:
    """Run actions of a stage until one lacks a message; return the stages that were sent something."""
    receivers = []
    own = pipeline.actions[stage]
    while pipeline.position[stage] < len(own):
        action = own[pipeline.position[stage]]
        arrivals = [pipeline.spans.get(message) for message in pipeline.needs[action]]
        if None in arrivals:
            break
        end = _record(pipeline, action, max([pipeline.free_from[stage], *(span.end for span in arrivals)]))
        pipeline.free_from[stage] = end
        pipeline.position[stage] += 1
        requests = list(pipeline.sends[action])
        if pipeline.position[stage] == len(own):
            requests.append(Request(key=("sync", stage), rank=(1, stage)))
        for request in requests:
            receivers += _stand_in_line(pipeline, request, end)
    return receivers


def _stand_in_line(pipeline: Pipeline, request: Request, ready: float) -> list[int]:
    """Wait for shared links; without any, only for the messages of the same flow."""
    flow = request.key[:2]
    if pipeline.shared_links[flow]:
        heapq.heappush(pipeline.line, (ready, request.rank, request))
        return []
    pipeline.free_from[flow] = _record(pipeline, request.key, max(ready, pipeline.free_from[flow]))
    return [] if request.receiver is None else [request.receiver]


def _grant(pipeline: Pipeline) -> list[int]:
    """Serve the request that was ready first."""
    ready, _, request = heapq.heappop(pipeline.line)
    links = pipeline.shared_links[request.key[:2]]
    end = _record(pipeline, request.key, max([ready, *(pipeline.free_from[link] for link in links)]))
    for link in links:
        pipeline.free_from[link] = end
    return [] if request.receiver is None else [request.receiver]


def _record(pipeline: Pipeline, key: Key, start: float) -> float:
    end = start + pipeline.seconds(key)
    pipeline.spans[key] = Span(start, end)
    return end


def _messages(actions: list[list[Key]]) -> tuple[dict[Key, list[Request]], dict[Key, list[Key]]]:
    """A message is what an action has in common with one action of the stage it sends to."""
    sends, needs = defaultdict(list), defaultdict(list)
    for stage, own in enumerate(actions):
        takers = {op: _by_first_sample(actions, op, stage + step) for op, step in (("F", 1), ("B", -1))}
        for position, action in enumerate(own):
            op, _, lo, hi = action
            for taker in _overlapping(takers[op], lo, hi):
                key = (f"send {op}", stage, max(lo, taker[2]), min(hi, taker[3]))
                sends[action].append(Request(key=key, rank=(0, stage, position, key[2]), receiver=taker[1]))
                needs[taker].append(key)
    return sends, needs


def _by_first_sample(actions: list[list[Key]], op: str, stage: int) -> list[Key]:
    if not 0 <= stage < len(actions):
        return []
    return sorted(action for action in actions[stage] if action[0] == op)


def _overlapping(tiles: list[Key], lo: int, hi: int) -> list[Key]:
    """Those of contiguous actions that share samples with [lo, hi)."""
    first = bisect_right(tiles, lo, key=lambda tile: tile[2]) - 1
    found = []
    for tile in tiles[max(first, 0) :]:
        if tile[2] >= hi:
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
