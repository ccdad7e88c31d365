"""Dilated mode for virtual workers: threads whose actions, messages, pushes and pulls take as long as planned.

Stages compute trivially and end their planned seconds later, messages queue for the links of the simulator's flows:
see :mod:`stagecut.executor.dilated.dilation` and :mod:`stagecut.planner.simulator.waves.play`. Gates, clocks and
staleness are those of the real runtime.
"""

import threading
from concurrent.futures import Future

from torch import Tensor

from stagecut.executor.dilated.timer import Timer
from stagecut.executor.schedule.messages import Message
from stagecut.executor.waves.channels import Channel
from stagecut.executor.waves.layout import Part, WaveRole
from stagecut.executor.waves.orders import Orders
from stagecut.executor.waves.shard import Pulled
from stagecut.executor.waves.wave_pace import WavePace
from stagecut.planner.cost.wave_costs import WaveCosts
from stagecut.planner.simulator.action_lists import Op
from stagecut.planner.simulator.waves.network import Node, network_of
from stagecut.planner.simulator.waves.tables import tables_of


class WaveDilation:
    """The pace of all stages of a :class:`stagecut.executor.waves.team.WaveTeam`, and of what they exchange.

    Pass `pace` and `channel` to the team.

    Parameters
    ----------
    time_scale
        Multiplies all planned times.
    """

    def __init__(self, costs: WaveCosts, *, time_scale: float = 1.0, timer: Timer | None = None) -> None:
        self.network, self.time_scale, self.timer = network_of(costs), time_scale, timer or Timer()
        self.tables = tables_of(self.network)
        self._numbers = {(node.worker, node.stage): number for number, node in enumerate(self.network.nodes)}
        self._free_s = [0.0] * self.tables.num_lines
        self._lock = threading.Lock()
        self._ends: dict[tuple[int, int], Future[float]] = {}
        self._ready: dict[tuple[int, int], list[float]] = {}

    def pace(self, role: WaveRole) -> WavePace:
        """The pace of a stage."""
        return _StagePace(self, self._numbers[role.member])

    def channel(self, role: WaveRole, part: Part, inner: Channel) -> Channel:
        """The exchange of a part of a stage."""
        number = self._numbers[role.member]
        node = self.network.nodes[number]
        if part.owner:
            push = next(flow for flow in node.pushes if self.network.flows[flow].owner == part.owner)
            return _ServedChannel(self, inner, push=push, pull=self.tables.pulls[self.network.flows[push].pair])
        return _ReducedChannel(self, inner, number, is_first=part.layers[0] == self._first_layer(node))

    def serve(self, flow: int, ready_s: float) -> float:
        """When a message ends that is ready now: first come, first served on all its links."""
        with self._lock:
            lines = self.tables.lines[flow]
            start_s = max(ready_s, *(self._free_s[line] for line in lines))
            end_s = start_s + self.time_scale * self.network.flows[flow].seconds
            for line in lines:
                self._free_s[line] = end_s
            return end_s

    def end_of(self, flow: int, number: int) -> "Future[float]":
        """When a message ends, once that is known."""
        with self._lock:
            return self._ends.setdefault((flow, number), Future())

    def forget(self, flow: int, number: int) -> None:
        """Nobody asks for the end of a message any more."""
        with self._lock:
            self._ends.pop((flow, number), None)

    def hand_over(self, node: int, wave: int, ready_s: float) -> None:
        """A stage is ready to all-reduce a wave: each holder's begins when all that share a layer with it are."""
        nodes = self.network.nodes
        for holder in nodes[node].holders:
            with self._lock:
                ready = self._ready.setdefault((holder, wave), [])
                ready.append(ready_s)
                is_last = len(ready) == len(nodes[holder].holders)
            if is_last:
                del self._ready[holder, wave]
                flow = nodes[holder].all_reduce
                self.end_of(flow, wave).set_result(self.serve(flow, max(ready)))

    def _first_layer(self, node: Node) -> int:
        return self.network.costs.plan.workers[node.worker].stages[node.stage].start


class _StagePace(WavePace):
    def __init__(self, dilation: WaveDilation, number: int) -> None:
        self._dilation, self._timer, self._number = dilation, dilation.timer, number
        node = dilation.network.nodes[number]
        self._seconds = {str(Op.FORWARD): node.forward_s, str(Op.BACKWARD): node.backward_s, "update": node.update_s}
        self._begin_s = self._end_s = self._timer.now()

    def begin(self) -> None:
        """See :class:`WavePace`."""
        self._begin_s = self._timer.now()

    def finish(self, kind: str, count: int = 1) -> None:
        """See :class:`WavePace`."""
        self._timer.wait_until(self._begin_s + self._dilation.time_scale * count * self._seconds[str(kind)])
        self._end_s = self._timer.now()

    def sent(self, message: Message) -> None:
        """See :class:`WavePace`."""
        node = self._dilation.network.nodes[self._number]
        flow = node.activations if message.op is Op.FORWARD else node.gradients
        self._dilation.end_of(flow, message.number).set_result(self._dilation.serve(flow, self._end_s))

    def received(self, message: Message) -> None:
        """See :class:`WavePace`."""
        tables = self._dilation.tables
        flow = (tables.before if message.op is Op.FORWARD else tables.after)[self._number]
        self._timer.wait_until(self._dilation.end_of(flow, message.number).result())
        self._dilation.forget(flow, message.number)


class _ServedChannel(Channel):
    """Pushes arrive, and pulls come back, when their messages end."""

    def __init__(self, dilation: WaveDilation, inner: Channel, *, push: int, pull: int) -> None:
        self._dilation, self._inner, self._push, self._pull = dilation, inner, push, pull
        self._orders: Orders[Pulled | None] = Orders(f"flow{push}")
        self._asked: Future[Pulled | None] = Future()

    def push(self, wave: int, vector: Tensor) -> None:
        """See :class:`Channel`."""
        timer = self._dilation.timer
        end_s = self._dilation.serve(self._push, timer.now())

        def order() -> None:
            timer.wait_until(end_s)
            self._inner.push(wave, vector)

        self._orders.put(order)

    def ask(self, *, have: int, least: int) -> None:
        """See :class:`Channel`."""
        timer = self._dilation.timer

        def order() -> Pulled:
            self._inner.ask(have=have, least=least)
            pulled = self._inner.answer()
            timer.wait_until(self._dilation.serve(self._pull, timer.now()))
            return pulled

        self._asked = self._orders.put(order)

    def answer(self) -> Pulled:
        """See :class:`Channel`."""
        pulled = self._asked.result()
        assert pulled is not None
        return pulled

    def rest(self) -> None:
        """See :class:`Channel`."""
        self._orders.put(self._inner.rest).result()

    def missing(self) -> Tensor | None:
        """See :class:`Channel`."""
        return self._inner.missing()


class _ReducedChannel(Channel):
    """A stage's sums over all workers end together, however its layers are divided."""

    def __init__(self, dilation: WaveDilation, inner: Channel, number: int, *, is_first: bool) -> None:
        self._dilation, self._inner, self._number, self._is_first = dilation, inner, number, is_first
        self._have = 0

    def push(self, wave: int, vector: Tensor) -> None:
        """See :class:`Channel`."""
        self._inner.push(wave, vector)
        if self._is_first:
            self._dilation.hand_over(self._number, wave, self._dilation.timer.now())

    def ask(self, *, have: int, least: int) -> None:
        """See :class:`Channel`."""
        self._have = have
        self._inner.ask(have=have, least=least)

    def answer(self) -> Pulled:
        """See :class:`Channel`."""
        pulled = self._inner.answer()
        flow = self._dilation.network.nodes[self._number].all_reduce
        for wave in range(self._have, pulled.clock):
            if flow >= 0:
                self._dilation.timer.wait_until(self._dilation.end_of(flow, wave).result())
        return pulled

    def rest(self) -> None:
        """See :class:`Channel`."""
        self._inner.rest()

    def missing(self) -> Tensor | None:
        """See :class:`Channel`."""
        return self._inner.missing()
