"""Which links the messages and all-reduces of a plan take their turn on."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stagecut.executor.dilated.planned_times import PlannedTimes
from stagecut.executor.dilated.shared_links import Booking
from stagecut.executor.play.layout import Layout
from stagecut.executor.play.messages import Message, Turn, turns_of
from stagecut.planner.simulator.action_lists import Action, Op
from stagecut.planner.simulator.routes import num_links, shared_routes


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookings:
    """All that the ranks of one pipeline book."""

    transfers: Mapping[int, Booking]
    """By the number of a message; the messages that replicas send each other at once have one in common."""
    syncs: Mapping[int, Booking]
    """By stage; one for the copies of all pipelines."""
    num_links: int
    """Of all pipelines."""
    num_bookings: int
    """Of all pipelines."""


def bookings_of(
    times: PlannedTimes, lists: Sequence[Sequence[Action]], layout: Layout, *, pipeline: int = 0
) -> Bookings:
    """Bookings of one pipeline; those of the others differ by the numbers of links and bookings.

    The messages of a boundary and direction are served one after another, so each such flow is a link
    of its own beside the links that several flows share.
    """
    groups = _whole_messages(turns_of(lists, layout, pipeline=pipeline))
    lanes = _Lanes(times)
    first = pipeline * len(groups)
    transfers = [_transfer(times, group, lanes, first + i, pipeline) for i, group in enumerate(groups)]
    after = layout.num_pipelines * len(groups)
    return Bookings(
        transfers={
            message.number: booking for booking, group in zip(transfers, groups, strict=True) for message in group
        },
        syncs={stage: _sync(times, layout, lanes, after + stage, stage) for stage in range(times.num_stages)},
        num_links=layout.num_pipelines * lanes.per_pipeline,
        num_bookings=after + times.num_stages,
    )


class _Lanes:
    """Numbers of links: for each pipeline its flows of messages, then the links that flows share."""

    def __init__(self, times: PlannedTimes) -> None:
        self._routes = shared_routes(times.routes)
        self._num_flows = 2 * (times.num_stages - 1)
        self.per_pipeline = self._num_flows + num_links(self._routes)

    def of_flow(self, flow: int, pipeline: int) -> tuple[int, ...]:
        """Links of a flow of a pipeline."""
        first = pipeline * self.per_pipeline
        own = (first + flow,) if flow < self._num_flows else ()
        return (*own, *(first + self._num_flows + link for link in self._routes[flow]))


def _whole_messages(turns: Mapping[int, Sequence[Turn]]) -> list[list[Message]]:
    """Messages between ranks by what they are to the simulator: from one action to one of the next stage."""
    sender = {message.number: turn.action for own in turns.values() for turn in own for message in turn.sends}
    receiver = {message.number: turn.action for own in turns.values() for turn in own for message in turn.receives}
    sent = (message for own in turns.values() for turn in own for message in turn.sends if not message.is_local)
    groups: dict[tuple[Action, Action], list[Message]] = defaultdict(list)
    for message in sorted(sent, key=lambda message: message.number):
        groups[sender[message.number], receiver[message.number]].append(message)
    return list(groups.values())


def _transfer(times: PlannedTimes, group: Sequence[Message], lanes: _Lanes, number: int, pipeline: int) -> Booking:
    """Devices that share a replica get copies of a message, which take no longer than one."""
    op, stage = group[0].op, group[0].stage
    boundary, flow = (stage, stage) if op is Op.FORWARD else (stage - 1, times.num_stages - 2 + stage)
    return Booking(
        number=number,
        num_parts=len(group),
        ranks=_distinct(message.source for message in group),
        seconds=times.message_s(boundary, sum(hi - lo for lo, hi in {(part.lo, part.hi) for part in group})),
        links=lanes.of_flow(flow, pipeline),
    )


def _sync(times: PlannedTimes, layout: Layout, lanes: _Lanes, number: int, stage: int) -> Booking:
    flow = 2 * (times.num_stages - 1) + stage
    ranks = _distinct(role.rank for role in layout.roles if stage in role.stages)
    return Booking(
        number=number,
        num_parts=len(ranks),
        ranks=ranks,
        seconds=times.sync_s[stage],
        links=tuple(link for pipeline in range(layout.num_pipelines) for link in lanes.of_flow(flow, pipeline)),
    )


def _distinct(ranks: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(ranks)))
