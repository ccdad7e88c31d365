"""Real training in which pushes reach parameter servers, and pulls are answered, in the order of a simulated run.

The numbers that virtual workers compute depend on time through one thing only: which waves a pull brings. Stages run as
threads at full speed, and each server takes what they send in the simulated order, so the training is exactly that of
the simulated cluster, whatever else this machine does, and every event has its simulated time.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from torch import Tensor

from stagecut.executor.waves.carriers.channels import Channel
from stagecut.executor.waves.carriers.shard import Pulled
from stagecut.executor.waves.setting.layout import Member, Part, WaveRole
from stagecut.planner.simulator.waves.network import WaveKind
from stagecut.planner.simulator.waves.play import WaveSpan
from stagecut.planner.simulator.waves.timeline import WaveTimeline

Event = tuple[WaveKind, Member, int]
"""A push of a wave by a stage, or the answer to its pull for the gate of a wave."""
Arrived = Callable[[str, float], None]
"""Told that a push has reached a host's server, and when."""


class ReplayError(RuntimeError):
    """A pull brought other waves than in the simulation."""


class ServerOrder:
    """One server's events: each happens when all before it have.

    Parameters
    ----------
    spans
        Pushes and pulls of this server.
    """

    def __init__(self, owner: str, spans: list[WaveSpan], arrived: Arrived) -> None:
        self.owner, self._arrived = owner, arrived
        pulls = [span for span in spans if span.kind is WaveKind.PULL]
        self._order = deque(_ordered([span for span in spans if span.kind is WaveKind.PUSH], pulls))
        self.clocks = {_event(span): span.clock for span in pulls}
        """Simulated clocks of answers."""
        self._waiting: dict[Event, Callable[[], None]] = {}
        self._lock = threading.Lock()

    def put(self, event: Event, action: Callable[[], None]) -> None:
        """Do this when it is its turn; what was not simulated comes after everything that was."""
        with self._lock:
            self._waiting[event] = action
            while self._order and self._order[0][0] in self._waiting:
                turn, time_s = self._order.popleft()
                self._waiting.pop(turn)()
                if turn[0] is WaveKind.PUSH:
                    self._arrived(self.owner, time_s)
            if not self._order:
                while self._waiting:
                    self._waiting.popitem()[1]()


class Replay:
    """The servers of a plan; pass `channel` to a :class:`stagecut.executor.waves.team.WaveTeam`."""

    def __init__(self, timeline: WaveTimeline, arrived: Arrived) -> None:
        self._clock_distance = timeline.costs.plan.clock_distance
        kinds = (WaveKind.PUSH, WaveKind.PULL)
        owners = sorted(set(timeline.costs.plan.owners))
        self._servers = {
            owner: ServerOrder(
                owner,
                [s for s in timeline.spans if s.kind in kinds and timeline.flows[s.flow].owner == owner],
                arrived,
            )
            for owner in owners
        }

    def channel(self, role: WaveRole, part: Part, inner: Channel) -> Channel:
        """The channel of a part of a stage, in simulated order; all-reduces need none."""
        if not part.owner:
            return inner
        return _OrderedChannel(self._servers[part.owner], inner, role.member, self._clock_distance)


class _OrderedChannel(Channel):
    def __init__(self, server: ServerOrder, inner: Channel, member: Member, clock_distance: int) -> None:
        self._server, self._inner, self._member, self._distance = server, inner, member, clock_distance
        self._answer: Future[Pulled] = Future()

    def push(self, wave: int, vector: Tensor) -> None:
        """See :class:`Channel`."""
        self._server.put((WaveKind.PUSH, self._member, wave), lambda: self._inner.push(wave, vector))

    def ask(self, *, have: int, least: int) -> None:
        """See :class:`Channel`: the request for the gate of wave least + D."""
        event, answer = (WaveKind.PULL, self._member, least + self._distance), Future[Pulled]()

        def reply() -> None:
            self._inner.ask(have=have, least=least)
            pulled = self._inner.answer()
            expected = self._server.clocks.get(event, pulled.clock)
            if pulled.clock == expected:
                answer.set_result(pulled)
            else:
                answer.set_exception(ReplayError(f"{event}: clock {pulled.clock}, simulated {expected}"))

        self._answer = answer
        self._server.put(event, reply)

    def answer(self) -> Pulled:
        """See :class:`Channel`."""
        return self._answer.result()


def _ordered(pushes: list[WaveSpan], pulls: list[WaveSpan]) -> Iterator[tuple[Event, float]]:
    """Events and when they end: pushes as they arrive, and each pull as soon as its clock can be answered.

    A pull's span does not tell when it was granted, but the clock that its server had then: it comes behind the push
    that gives the server this clock, and behind the stage's own last push before the gate.
    """
    arrived = dict.fromkeys(((span.worker, span.stage) for span in pushes), 0)
    waiting = {member: deque[WaveSpan]() for member in arrived}
    for span in sorted(pulls, key=lambda span: span.number):
        waiting[span.worker, span.stage].append(span)
    for span in sorted(pushes, key=lambda span: span.end_s):
        arrived[span.worker, span.stage] += 1
        yield _event(span), span.end_s
        clock = min(arrived.values())
        for member, own in waiting.items():
            if own and own[0].clock == clock and own[0].number <= arrived[member]:
                yield _event(own[0]), own.popleft().end_s


def _event(span: WaveSpan) -> Event:
    return span.kind, (span.worker, span.stage), span.number
