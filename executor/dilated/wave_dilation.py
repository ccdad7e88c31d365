"""Dilated mode of virtual workers: stages, messages, pushes, pulls and all-reduces as slow as planned.

The work is real but small. An action ends its planned seconds after it actually began. Messages, pushes, pulls and
all-reduces get the links of their routes by the simulator's rule, from when they were actually ready: the server gets a
push, and the stage what it pulls, when it would have arrived. All stages are threads of one process, and a thread of
its own grants links.
"""

import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from torch import Tensor

from stagecut.executor.dilated.event_queue import EventQueue
from stagecut.executor.dilated.timer import Timer
from stagecut.executor.ranks.environment import TIMEOUT_S
from stagecut.executor.schedule.messages import Message
from stagecut.executor.waves.carriers.channels import Channel, DirectChannel, Ended
from stagecut.executor.waves.carriers.shard import Pulled
from stagecut.executor.waves.setting.layout import Part, WaveRole
from stagecut.executor.waves.setting.wave_pace import WavePace
from stagecut.planner.cost.waves.wave_costs import WaveCosts
from stagecut.planner.simulator.action_lists import Op
from stagecut.planner.simulator.waves.network import WaveKind, network_of
from stagecut.planner.simulator.waves.tables import tables_of


class WaveDilation:
    """The pace of all stages of a plan, and of their channels: for :class:`stagecut.executor.waves.team.WaveTeam`."""

    def __init__(self, costs: WaveCosts, *, timeout_s: float = TIMEOUT_S) -> None:
        self.network, self.timeout_s = network_of(costs), timeout_s
        self.timer = Timer()
        self.events = EventQueue(self.timer)
        self.time_scale = 1.0
        """Multiplies all planned times; 0: full speed."""
        self._tables = tables_of(self.network)
        self._free_s = [0.0] * self._tables.num_lines
        """When links are free again; the thread of events has it alone."""
        self._nodes = {(node.worker, node.stage): index for index, node in enumerate(self.network.nodes)}
        self._flows = {(flow.kind, flow.node, flow.owner): index for index, flow in enumerate(self.network.flows)}
        self._arrivals: dict[tuple[int, int, int], Future[float]] = {}
        """When messages arrive, by source, target and number."""
        self._reduces = {flow.layers: index for index, flow in enumerate(self.network.flows) if flow.layers is not None}
        self._ready: dict[tuple[int, int], list[float]] = defaultdict(list)
        """When the members of an all-reduce were ready, by flow and wave."""
        self._ends: dict[tuple[int, int], Future[float]] = defaultdict(Future)
        """When all-reduces end, by flow and wave."""
        self._lock = threading.Lock()

    def pace(self, role: WaveRole) -> WavePace:
        """The pace of a stage."""
        return _StagePace(self, self._nodes[role.member])

    def channel(self, role: WaveRole, part: Part, channel: Channel) -> Channel:
        """A channel that takes its time."""
        if isinstance(channel, DirectChannel):
            return _ServerChannel(self, channel, self._nodes[role.member], part.owner)
        flow = self._reduces.get((part.layers[0], part.layers[-1] + 1))
        return channel if flow is None else _ReduceChannel(self, channel, flow)

    def serve(self, kind: WaveKind, node: int, ready_s: float, *, owner: str = "", times: int = 1) -> "Future[float]":
        """When a message arrives that is ready at a time, and takes so many times as long as planned."""
        arrival: Future[float] = Future()
        self._serve(self._flows[kind, node, owner], ready_s, arrival, times=times)
        return arrival

    def _serve(self, flow: int, ready_s: float, arrival: "Future[float]", *, times: int = 1) -> None:
        """Grant a message its links at the first moment when all are free, and of several the first ready one."""
        lines, seconds = self._tables.lines[flow], times * self.network.flows[flow].seconds

        def grant(now_s: float) -> None:
            start_s = max(now_s, *(self._free_s[line] for line in lines))
            if start_s > now_s:
                self.events.at(start_s, partial(grant, start_s), order=ready_s)
                return
            end_s = start_s + self.time_scale * seconds
            for line in lines:
                self._free_s[line] = end_s
            arrival.set_result(end_s)

        self.events.at(ready_s, partial(grant, ready_s), order=ready_s)

    def deliver(self, arrival: "Future[float]", receive: Callable[[], object]) -> None:
        """Call a function when a message has arrived."""
        arrival.add_done_callback(lambda end_s: self.events.at(end_s.result(), receive))

    def send(self, message: Message, node: int) -> None:
        """A message leaves a stage."""
        kind = WaveKind.ACTIVATIONS if message.op is Op.FORWARD else WaveKind.GRADIENTS
        arrival = self.serve(kind, node, self.timer.now())
        self._arrivals[message.source, message.target, message.number] = arrival

    def arrival_s(self, message: Message) -> float:
        """When a message arrives that has been sent."""
        return self._arrivals.pop((message.source, message.target, message.number)).result(timeout=self.timeout_s)

    def hand_over(self, flow: int, wave: int) -> None:
        """A member has what it gives to the all-reduce of a wave, which begins once all have."""
        with self._lock:
            ready_s = self._ready[flow, wave]
            ready_s.append(self.timer.now())
            complete = len(ready_s) == len(self.network.flows[flow].members)
        if complete:
            del self._ready[flow, wave]
            self._serve(flow, max(ready_s), self.reduced(flow, wave))

    def reduced(self, flow: int, wave: int) -> "Future[float]":
        """When an all-reduce ends."""
        with self._lock:
            return self._ends[flow, wave]


class _StagePace(WavePace):
    """The pace of one stage."""

    def __init__(self, dilation: WaveDilation, node: int) -> None:
        self._dilation, self._node, self._timer = dilation, node, dilation.timer
        own = dilation.network.nodes[node]
        self._seconds = {"F": own.forward_s, "B": own.backward_s, "update": own.update_s}
        self._begin_s = 0.0

    def begin(self) -> None:
        """See :class:`WavePace`."""
        self._begin_s = self._timer.now()

    def finish(self, kind: str, count: int = 1) -> None:
        """See :class:`WavePace`."""
        seconds = count * self._seconds[str(kind)]
        self._timer.wait_until(self._begin_s + self._dilation.time_scale * seconds)

    def sent(self, message: Message) -> None:
        """See :class:`WavePace`."""
        self._dilation.send(message, self._node)

    def received(self, message: Message) -> None:
        """See :class:`WavePace`."""
        self._timer.wait_until(self._dilation.arrival_s(message))


class _ServerChannel(Channel):
    """A push reaches the shard when it has arrived, and then comes the request; the reply takes its time as well."""

    def __init__(self, dilation: WaveDilation, channel: DirectChannel, node: int, owner: str) -> None:
        self._dilation, self._channel, self._node, self._owner = dilation, channel, node, owner
        self._pushed: Future[float] = Future()
        """When the last push arrives."""
        self._pushed.set_result(0.0)
        self._asked: Future[Pulled] = Future()

    def push(self, wave: int, vector: Tensor) -> Ended:
        """See :class:`Channel`."""
        ready_s = self._dilation.timer.now()
        self._pushed = self._dilation.serve(WaveKind.PUSH, self._node, ready_s, owner=self._owner)
        ended: Future[object] = Future()

        def arrive() -> None:
            self._channel.push(wave, vector)
            ended.set_result(None)

        self._dilation.deliver(self._pushed, arrive)
        return ended

    def ask(self, *, have: int, least: int) -> Ended:
        """See :class:`Channel`."""
        asked: Future[Pulled] = Future()
        self._asked = asked

        def request() -> None:
            self._channel.ask(have=have, least=least)
            self._channel.asked.add_done_callback(lambda reply: self._reply(reply, asked, have))

        self._dilation.deliver(self._pushed, request)
        return asked

    def answer(self) -> Pulled:
        """See :class:`Channel`."""
        return self._asked.result()

    def _reply(self, reply: "Future[Pulled]", asked: "Future[Pulled]", have: int) -> None:
        if (fault := reply.exception()) is not None:
            asked.set_exception(fault)
            return
        dilation = self._dilation
        times = reply.result().clock - have if dilation.network.flushes else 1  # gradients wave by wave
        arrival = dilation.serve(WaveKind.PULL, self._node, dilation.events.now(), owner=self._owner, times=times)
        dilation.deliver(arrival, lambda: asked.set_result(reply.result()))


class _ReduceChannel(Channel):
    """An all-reduce ends when it would have, for all its members."""

    def __init__(self, dilation: WaveDilation, channel: Channel, flow: int) -> None:
        self._dilation, self._channel, self._flow = dilation, channel, flow
        self._least = 0

    def push(self, wave: int, vector: Tensor) -> Ended:
        """See :class:`Channel`."""
        self._channel.push(wave, vector)
        self._dilation.hand_over(self._flow, wave)
        ended: Future[object] = Future()
        self._dilation.deliver(self._dilation.reduced(self._flow, wave), lambda: ended.set_result(None))
        return ended

    def ask(self, *, have: int, least: int) -> Ended:
        """See :class:`Channel`."""
        self._least = least
        return self._channel.ask(have=have, least=least)

    def answer(self) -> Pulled:
        """See :class:`Channel`: all-reduces end in order, so the last one counts."""
        pulled = self._channel.answer()
        ends = self._dilation.reduced(self._flow, self._least - 1)
        self._dilation.timer.wait_until(ends.result(timeout=self._dilation.timeout_s))
        return pulled
