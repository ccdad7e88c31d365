"""The event loop: stages, links and parameter servers of all workers, in order of time.

The rules are those of one iteration (docs/simulator.md). A stage runs its minibatches in a fixed order: a forward
while fewer than its warm-up depth are in flight, else a backward. A message is *ready* once what it carries is there.
Here alone it holds none of its links while it waits for others: it is granted at the first moment when all shared links
of its route are free, and of those that could be granted at one moment the one that became ready first.

At any instant everything that ends is dealt with first, then messages are granted by (time ready, class, stage, number,
server): see `tables.CLASSES`. The reply to a pull carries the clock that its server has when the reply is ready. With
one step a wave it holds the gradients of each further wave, and takes so many times as long.
"""

from heapq import heappop, heappush
from typing import NamedTuple

from stagecut.planner.simulator.waves.network import NONE, WaveKind, WaveNetwork
from stagecut.planner.simulator.waves.servers import Servers
from stagecut.planner.simulator.waves.tables import SLOT_BITS, tables_of

GATE = -2
"""What a stage waits for at a gate, where others wait for a flow."""
ENDS = -1.0
"""Stands for the time ready of events that grant nothing, so that they come first."""
MESSAGES = frozenset({WaveKind.ACTIVATIONS, WaveKind.GRADIENTS})
"""What a stage gets from its neighbours."""
NEVER = 1 << 30
"""Minibatches of a run without end."""


class WaveSpan(NamedTuple):
    """What a stage or a message did, and when."""

    kind: WaveKind
    worker: int
    stage: int
    number: int
    """The minibatch, from 1, of forwards, backwards, their messages and local steps; else the wave, from 0. A pull has
    the number of the wave whose gate asks for it."""
    start_s: float
    end_s: float
    clock: int = 0
    """First waves of all workers in the weights of a forward, in the reply to a pull, or in the weights after the local
    step of a wave; 0 on stages that exchange nothing."""
    flow: int = NONE
    """Number of a message's flow."""


class Play:
    """A run of so many waves, or the beginning of one without end.

    Lists have one entry for each stage, flow or worker.
    """

    def __init__(self, network: WaveNetwork, *, num_waves: int | None = None, record: bool = False) -> None:
        nodes, num_flows, num_workers = network.nodes, len(network.flows), len(network.costs.workers)
        self.network, self.nodes, self.flows, self.tables = network, nodes, network.flows, tables_of(network)
        self.flushes = network.flushes
        self.total = [NEVER if num_waves is None else node.wave * num_waves for node in nodes]
        last_gate = NEVER if num_waves is None else num_waves - (not self.flushes)
        self.servers = Servers(self.tables, clock_distance=network.clock_distance, last_gate=last_gate)
        self.heap: list[tuple[float, float, int, int, float]] = []
        """Events: (time, `ENDS`, 0, stage, 0) or (time, `ENDS`, 0, stages + flow, how long its message queued), and
        messages that may be granted: (time, time ready, rank, flow, number)."""
        self.forwards, self.backwards = [0] * len(nodes), [0] * len(nodes)
        self.limit = [node.wave if self.flushes else total for node, total in zip(nodes, self.total, strict=True)]
        """Forwards that a stage may begin before the next flush."""
        self.gate = [2 * node.wave if node.exchanges and not self.flushes else NONE for node in nodes]
        self.need = [1 - network.clock_distance if node.exchanges else -NEVER for node in nodes]
        """Clock that the next gate asks for."""
        self.clock = [0] * len(nodes)
        """Clock of the oldest of a stage's copies."""
        self.seen = [0] * len(nodes)
        """Clock of the weights that a stage computes with."""
        self.waiting, self.since = [NONE] * len(nodes), [0.0] * len(nodes)
        self.reducing: list[dict[int, tuple[int, float]]] = [{} for _ in network.costs.all_reduces]
        """By all-reduce, and by wave that it cannot sum up yet: how many members are ready, and since when."""
        self.arrived = [0] * num_flows
        self.free = [0.0] * self.tables.num_lines
        self.wave_ends: list[list[float]] = [[] for _ in range(num_workers)]
        self.stages_done: list[list[int]] = [[] for _ in range(num_workers)]
        """Stages that have ended each wave."""
        self.num_done = [0] * num_workers
        """Waves that all stages of a worker have ended."""
        self.done_by_all = 0
        self.waits = [[0.0, 0.0, 0.0] for _ in range(num_workers)]
        """Seconds that a worker's stages have waited at gates, for the pipeline, for links."""
        self.carried = [0] * num_flows
        """Messages of each flow; a reply with several waves, that takes so many times as long, counts as so many."""
        self.spans: list[WaveSpan] | None = [] if record else None
        self.now, self.num_events = 0.0, 0
        for node in range(len(nodes)):
            self._step(node, 0.0)

    def run(self, num_waves: int) -> None:
        """Go on until all workers have ended so many waves, or to the end of the run."""
        heap, num_nodes = self.heap, len(self.nodes)
        while heap and self.done_by_all < num_waves:
            self.now, ready, rank, code, value = heappop(heap)
            self.num_events += 1
            if ready != ENDS:
                self._grant(code, ready, int(value), rank)
            elif code < num_nodes:
                self._step(code, self.now)
            else:
                self._arrive(code - num_nodes, self.now, value)

    def _step(self, node: int, now: float) -> None:
        """A stage is free: it begins its next action, or waits for what that needs."""
        forwards, backwards = self.forwards[node], self.backwards[node]
        if forwards - backwards < self.nodes[node].depth and forwards < self.limit[node]:
            source = self.tables.before[node]
            if source != NONE and self.arrived[source] == forwards:
                self.waiting[node], self.since[node] = source, now
            elif forwards + 1 == self.gate[node] and self.clock[node] < self.need[node]:
                self.waiting[node], self.since[node] = GATE, now
            else:
                self._forward(node, now)
        elif backwards < forwards:
            source = self.tables.after[node]
            if source != NONE and self.arrived[source] == backwards:
                self.waiting[node], self.since[node] = source, now
            else:
                self._backward(node, now)
        elif self.flushes:
            if self.clock[node] < self.need[node]:
                self.waiting[node], self.since[node] = GATE, now
            else:
                self._flush(node, now)

    def _forward(self, node: int, now: float) -> None:
        own, minibatch = self.nodes[node], self.forwards[node] + 1
        if minibatch == self.gate[node]:
            self.gate[node] += own.wave
            self._pass_gate(node)
        self.forwards[node] = minibatch
        end = now + own.forward_s
        heappush(self.heap, (end, ENDS, 0, node, 0.0))
        if own.activations != NONE:
            self._send(own.activations, end, minibatch, position=minibatch + self.backwards[node])
        if self.spans is not None:
            self._record(WaveKind.FORWARD, node, minibatch, now, end)

    def _backward(self, node: int, now: float) -> None:
        """A backward; without flushes also the local step, and the end of a wave."""
        own, minibatch = self.nodes[node], self.backwards[node] + 1
        self.backwards[node] = minibatch
        end = now + own.backward_s
        free = end if self.flushes else end + own.update_s
        heappush(self.heap, (free, ENDS, 0, node, 0.0))
        if own.gradients != NONE:
            self._send(own.gradients, end, minibatch, position=minibatch + self.forwards[node])
        if self.spans is not None:
            self._record(WaveKind.BACKWARD, node, minibatch, now, end)
            if not self.flushes:
                self._record(WaveKind.UPDATE, node, minibatch, end, free)
        wave, rest = divmod(minibatch, own.wave)
        if rest == 0:
            self._hand_over(node, free, wave - 1)
            if not self.flushes:
                self._end_wave(node, free, wave - 1)

    def _flush(self, node: int, now: float) -> None:
        """The optimizer steps after a wave: one for each further wave of all workers that the copies hold."""
        own, wave = self.nodes[node], self.backwards[node] // self.nodes[node].wave - 1
        num_steps = self._pass_gate(node) if own.exchanges else 1
        free = now + num_steps * own.update_s
        if self.spans is not None and num_steps:
            self._record(WaveKind.UPDATE, node, wave, now, free)
        self._end_wave(node, free, wave)
        if self.limit[node] < self.total[node]:
            self.limit[node] += own.wave
            heappush(self.heap, (free, ENDS, 0, node, 0.0))

    def _pass_gate(self, node: int) -> int:
        """Merge what has come by a gate: further waves. A delayed all-reduce brings those up to the gate's, no more."""
        before, need = self.seen[node], self.need[node]
        self.seen[node] = self.clock[node] if self.nodes[node].pushes else max(0, need)
        self.need[node] = need + 1
        return self.seen[node] - before

    def _hand_over(self, node: int, ready: float, wave: int) -> None:
        """Push the update of a wave; an all-reduce is ready when all its members are."""
        for flow in self.nodes[node].pushes:
            self._send(flow, ready, wave, position=wave)
        for flow in self.nodes[node].all_reduces:
            count, since = self.reducing[flow].pop(wave, (0, 0.0))
            count, since = count + 1, max(since, ready)
            if count < len(self.flows[flow].members):
                self.reducing[flow][wave] = (count, since)
            else:
                self._send(flow, since, wave, position=wave)

    def _end_wave(self, node: int, end: float, wave: int) -> None:
        worker = self.nodes[node].worker
        ends, stages = self.wave_ends[worker], self.stages_done[worker]
        if wave == len(ends):
            ends.append(end)
            stages.append(0)
        ends[wave] = max(ends[wave], end)
        stages[wave] += 1
        if stages[wave] == self.network.costs.workers[worker].worker.num_stages:
            self.num_done[worker] += 1
            self.done_by_all = min(self.num_done)

    def _send(self, flow: int, ready: float, number: int, *, position: int) -> None:
        """Queue a message, or serve it if nothing else uses its links."""
        if self.tables.queues[flow]:
            heappush(self.heap, (ready, ready, self.tables.rank[flow] + (position << SLOT_BITS), flow, number))
        else:
            self._serve(flow, ready, number, self._free_at(flow, ready))

    def _free_at(self, flow: int, now: float) -> float:
        """When all links of a message are free that wants them now."""
        free = self.free
        for line in self.tables.lines[flow]:
            if free[line] > now:  # noqa: PLR1730 - a call of max costs more
                now = free[line]
        return now

    def _grant(self, flow: int, ready: float, number: int, rank: int) -> None:
        """Serve a message now, or let it wait until all its links are free, whoever takes them by then."""
        own, start = self.flows[flow], self._free_at(flow, self.now)
        if own.kind is WaveKind.PULL and self.now == ready:
            self.servers.reply(own.pair)
        if start > self.now:
            heappush(self.heap, (start, ready, rank, flow, number))
        else:
            self._serve(flow, ready, number, start)

    def _serve(self, flow: int, ready: float, number: int, start: float) -> None:
        """Let a message occupy its links."""
        own, clock, times = self.flows[flow], 0, 1
        if own.kind is WaveKind.PULL:
            clock = self.servers.replies[own.pair]
            times = clock - self.servers.copy[own.pair] if self.flushes else 1
        end = start + times * own.seconds
        for line in self.tables.lines[flow]:
            self.free[line] = end
        heappush(self.heap, (end, ENDS, 0, len(self.nodes) + flow, start - ready))
        self.carried[flow] += times
        if self.spans is not None:
            node = self.nodes[own.node]
            self.spans.append(WaveSpan(own.kind, node.worker, node.stage, number, start, end, clock, flow))

    def _arrive(self, flow: int, now: float, queued: float) -> None:
        """A message has arrived that had to wait so long for its links."""
        own, node = self.flows[flow], self.tables.receiver[flow]
        self.arrived[flow] += 1
        if own.kind is WaveKind.PUSH:
            for pair, wave in self.servers.push(own.pair):
                self._send(self.tables.pulls[pair], now, wave, position=wave)
            return
        if own.kind is WaveKind.PULL:
            self.servers.copy[own.pair] = self.servers.replies[own.pair]
            pairs = (self.flows[push].pair for push in self.nodes[node].pushes)
            self.clock[node] = min(self.servers.copy[pair] for pair in pairs)
        for member in own.members:
            self.clock[member] = min(self.arrived[each] for each in self.nodes[member].all_reduces)
        awaited = flow if own.kind in MESSAGES else GATE
        for waiting in own.members or (node,):
            if self.waiting[waiting] == awaited:
                self._wake(waiting, now, queued)

    def _wake(self, node: int, now: float, queued: float) -> None:
        """What a stage waits for is there: account for its wait, and try again."""
        waits, idle = self.waits[self.nodes[node].worker], now - self.since[node]
        if self.waiting[node] == GATE:
            waits[0] += idle
        else:
            for_links = min(idle, queued)
            waits[1] += idle - for_links
            waits[2] += for_links
        self.waiting[node] = NONE
        self._step(node, now)

    def _record(self, kind: WaveKind, node: int, number: int, start: float, end: float) -> None:
        own = self.nodes[node]
        if self.spans is not None:
            self.spans.append(WaveSpan(kind, own.worker, own.stage, number, start, end, self.seen[node]))
