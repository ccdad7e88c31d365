"""A plain simulator of virtual workers that train through waves, against which the planner's is checked.

It knows no events: it finds, over and over, whatever has all it waits for, and computes when that starts and ends. Only
messages on shared links and replies of servers are granted one by one: the one that can start first, then the one that
became ready first. Written from docs/waves.md.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

from stagecut.planner.core.waves import Carrier, LocalStep
from stagecut.planner.cost.waves.wave_costs import WaveCosts

Key = tuple
"""Kind, worker, stage, number (minibatch or wave), server; of all-reduces: kind, first layer, stop, wave."""


class Request(NamedTuple):
    """A message that waits to be granted."""

    ready: float
    rank: tuple
    key: Key


class Reference:
    """All workers, for a number of waves."""

    def __init__(self, costs: WaveCosts, num_waves: int) -> None:
        self.costs, self.plan, self.num_waves = costs, costs.plan, num_waves
        self.spans: dict[Key, tuple[float, float]] = {}
        self.clocks: dict[Key, int] = {}
        """Of forwards and pulls."""
        self.by_wave = self.plan.local_step is LocalStep.WAVE
        self.alone = len(costs.workers) == 1
        self.served = self.plan.carrier is Carrier.PARAMETER_SERVER and not self.alone
        self.stages = [(w, s) for w, own in enumerate(costs.workers) for s in range(own.worker.num_stages)]
        self.programs = {stage: self.program(*stage) for stage in self.stages}
        self.left = {stage: list(program) for stage, program in self.programs.items()}
        self.free = dict.fromkeys(self.stages, 0.0)
        self.copies = {(w, s, e.owner): 0 for w, s in self.stages for e in costs.workers[w].exchanges[s]}
        self.used = dict.fromkeys(self.stages, 0)
        """Clock of the weights of each stage."""
        self.sent: set[Key] = set()
        self.requests: list[Request] = []
        self.flow_free: dict[Key, float] = defaultdict(float)
        self.link_free: dict[str, float] = defaultdict(float)
        users = Counter(name for flow in self.flows() for name in set(self.route(flow)))
        self.shared = {name for name, number in users.items() if number > 1}

    def program(self, w: int, s: int) -> list[tuple[str, int]]:
        worker = self.costs.workers[w].worker
        depth, wave, total = worker.stages[s].warmup_depth, worker.wave, worker.wave * self.num_waves
        if not self.by_wave:
            steps = [("F", p) for p in range(1, min(depth, total) + 1)]
            for p in range(1, total + 1):
                steps += [("B", p), ("U", p)]
                if depth + p <= total:
                    steps.append(("F", depth + p))
            return steps
        steps = []
        for c in range(self.num_waves):
            first = c * wave
            steps += [("F", first + i) for i in range(1, min(depth, wave) + 1)]
            for i in range(1, wave + 1):
                steps.append(("B", first + i))
                if depth + i <= wave:
                    steps.append(("F", first + depth + i))
            steps.append(("flush", c))
        return steps

    def flows(self) -> list[Key]:
        found: list[Key] = []
        for w, s in self.stages:
            found += [("send F", w, s)] if (w, s + 1) in self.programs else []
            found += [("send B", w, s)] if s > 0 else []
            found += [(kind, w, s, o) for kind in ("push", "pull") for (x, y, o) in self.copies if (x, y) == (w, s)]
        return [*found, *(("all-reduce", *each.layers) for each in self.costs.all_reduces)]

    def route(self, flow: Key) -> tuple[str, ...]:
        kind, w, s, *owner = flow
        if kind == "all-reduce":
            return next(each.links for each in self.costs.all_reduces if each.layers == (w, s))
        own = self.costs.workers[w]
        if kind == "send F":
            return own.forward_links[s]
        if kind == "send B":
            return own.backward_links[s - 1]
        exchange = next(e for e in own.exchanges[s] if e.owner == owner[0])
        return exchange.push_links if kind == "push" else exchange.pull_links

    def seconds(self, flow: Key) -> float:
        kind, w, s, *owner = flow
        if kind == "all-reduce":
            return next(each.seconds for each in self.costs.all_reduces if each.layers == (w, s))
        own = self.costs.workers[w]
        if kind == "send F":
            return float(own.transfer_s[s])
        if kind == "send B":
            return float(own.transfer_s[s - 1])
        exchange = next(e for e in own.exchanges[s] if e.owner == owner[0])
        return exchange.push_s if kind == "push" else exchange.pull_s

    def run(self) -> None:
        """Everything that needs no grant, then the smallest request, and so on."""
        while True:
            while any([*map(self.advance, self.stages), self.exchange()]):
                pass
            if not self.requests:
                break
            request = min(self.requests, key=self.turn)
            if request.key[0] == "pull" and request.key not in self.clocks:
                self.clocks[request.key] = self.server_clock(request.key[4], request.ready)
            else:
                self.requests.remove(request)
                self.grant(request)
        assert not any(self.left.values()), "workers wait for each other"

    # Stages.

    def advance(self, stage: tuple[int, int]) -> bool:
        """Run the next action of a stage if all it waits for is known."""
        w, s = stage
        if not self.left[stage]:
            return False
        kind, number = self.left[stage][0]
        needs = self.needs(kind, w, s, number)
        if any(key not in self.spans for key in needs) or not self.has_clock(kind, w, s, number):
            return False
        start = max([self.free[stage], *(self.spans[key][1] for key in needs)])
        self.free[stage] = end = start + self.duration(kind, w, s, number)
        del self.left[stage][0]
        if kind != "flush" or end > start:
            self.spans[kind, w, s, number] = (start, end)
        if kind == "F":
            self.clocks[kind, w, s, number] = self.used[stage]
        position = (
            [step for step in self.programs[stage] if step[0] in "FB"].index((kind, number)) if kind in "FB" else 0
        )
        neighbour = {"F": s + 1, "B": s - 1}.get(kind, -1)
        if (w, neighbour) in self.programs:
            self.send((f"send {kind}", w, s), number, end, (0, self.stages.index(stage), position))
        return True

    def needs(self, kind: str, w: int, s: int, number: int) -> list[Key]:
        """Messages that an action waits for: from its neighbours, and at a gate what was asked for there."""
        found: list[Key] = []
        if kind == "F" and s > 0:
            found.append(("send F", w, s - 1, number))
        if kind == "B" and (w, s + 1) in self.programs:
            found.append(("send B", w, s + 1, number))
        gate = self.gate(kind, w, number)
        if gate and self.served:
            found += [
                ("pull", *pair[:2], gate, pair[2])
                for pair in self.copies
                if ("pull", *pair[:2], gate, pair[2]) in self.sent and pair[:2] == (w, s)
            ]
        if gate and not (self.served or self.alone) and gate - 1 - self.plan.clock_distance >= 0:
            wave = gate - 1 - self.plan.clock_distance
            found += [("all-reduce", *each.layers, wave) for each in self.costs.all_reduces if each.stages[w] == s]
        return found

    def gate(self, kind: str, w: int, number: int) -> int:
        """The wave whose gate an action is, 0 for others."""
        wave = self.costs.workers[w].worker.wave
        if self.by_wave:
            return number + 1 if kind == "flush" else 0
        return number // wave - 1 if kind == "F" and number % wave == 0 else 0

    def has_clock(self, kind: str, w: int, s: int, number: int) -> bool:
        gate = self.gate(kind, w, number)
        own = [clock for pair, clock in self.copies.items() if pair[:2] == (w, s)]
        return not gate or not own or min(own) >= gate - self.plan.clock_distance

    def duration(self, kind: str, w: int, s: int, number: int) -> float:
        own = self.costs.workers[w]
        seconds = {"F": own.forward_s, "B": own.backward_s, "U": own.update_s, "flush": own.update_s}[kind][s]
        gate, steps = self.gate(kind, w, number), 1
        if gate and not self.alone:
            own_copies = [clock for pair, clock in self.copies.items() if pair[:2] == (w, s)]
            now = min(own_copies) if self.served else max(0, gate - self.plan.clock_distance)
            steps, self.used[w, s] = now - self.used[w, s], now
        return float(seconds) * (steps if kind == "flush" else 1)

    # Messages.

    def exchange(self) -> bool:
        """Send the pushes, pulls and all-reduces that are ready."""
        before = len(self.sent)
        for index, (w, s) in enumerate(self.stages):
            for c in range(self.num_waves if not self.alone else 0):
                for slot, exchange in enumerate(self.costs.workers[w].exchanges[s]):
                    self.push_and_pull((w, s, exchange.owner), c, index=index, slot=slot)
        for number, each in enumerate(self.costs.all_reduces):
            members = list(enumerate(each.stages))
            for c in range(self.num_waves):
                ready = [self.handed_over(member, c) for member in members]
                if None not in ready:
                    rank = (1, self.stages.index(members[0]), c, number)
                    self.send(("all-reduce", *each.layers), c, max(ready), rank)
        return len(self.sent) > before

    def handed_over(self, stage: tuple[int, int], wave: int) -> float | None:
        """When a stage has its update of a wave."""
        minibatch = (wave + 1) * self.costs.workers[stage[0]].worker.wave
        span = self.spans.get(("B" if self.by_wave else "U", *stage, minibatch))
        return None if span is None else span[1]

    def push_and_pull(self, pair: tuple[int, int, str], c: int, *, index: int, slot: int) -> None:
        w, s, owner = pair
        ready = self.handed_over((w, s), c)
        if ready is not None:
            self.send(("push", w, s, owner), c, ready, (1, index, c, slot))
        # With its own push of wave c a stage asks for what the gate of wave c + 1 needs.
        own, gate = self.spans.get(("push", w, s, c, owner)), c + 1
        need = gate - self.plan.clock_distance
        is_last = gate == self.num_waves and not self.by_wave
        if own is None or is_last or ("pull", w, s, gate, owner) in self.sent or self.copies[pair] >= need:
            return
        there = [self.spans.get(("push", *other[:2], need - 1, owner)) for other in self.copies if other[2] == owner]
        if None not in there:
            ready = max(own[1], *(span[1] for span in there))
            self.send(("pull", w, s, owner), gate, ready, (2, index, gate, slot))

    def send(self, flow: Key, number: int, ready: float, rank: tuple) -> None:
        kind, w, s, *owner = flow
        key = (kind, w, s, number, *owner)
        if key in self.sent:
            return
        self.sent.add(key)
        if kind == "pull" or any(name in self.shared for name in self.route(flow)):
            self.requests.append(Request(ready, rank, key))
        else:
            self.serve(key, ready)

    def turn(self, request: Request) -> tuple[float, float, tuple]:
        """When its links are free, or when a reply takes its server's clock; then when it became ready."""
        has_clock = request.key[0] != "pull" or request.key in self.clocks
        return (self.start(request.key, request.ready) if has_clock else request.ready), request.ready, request.rank

    def grant(self, request: Request) -> None:
        kind, w, s, _, *owner = request.key
        times = 1
        if kind == "pull":
            before, clock = self.copies[w, s, owner[0]], self.clocks[request.key]
            self.copies[w, s, owner[0]] = clock
            times = clock - before if self.by_wave else 1
        self.serve(request.key, request.ready, times)

    def serve(self, key: Key, ready: float, times: int = 1) -> None:
        flow = self.flow(key)
        start = self.start(key, ready)
        end = start + times * self.seconds(flow)
        self.flow_free[flow] = end
        self.link_free |= dict.fromkeys(self.links(flow), end)
        self.spans[key] = (start, end)

    def start(self, key: Key, ready: float) -> float:
        """When all links of a message are free, from when it is ready on."""
        flow = self.flow(key)
        return max([ready, self.flow_free[flow], *(self.link_free[name] for name in self.links(flow))])

    def flow(self, key: Key) -> Key:
        kind, w, s, _, *owner = key
        return (kind, w, s, *owner)

    def links(self, flow: Key) -> list[str]:
        return [name for name in self.route(flow) if name in self.shared]

    def server_clock(self, owner: str, now: float) -> int:
        """First waves that all stages of the server have pushed by now."""
        pairs = [pair for pair in self.copies if pair[2] == owner]
        clock = 0
        while all(self.spans.get(("push", w, s, clock, owner), (0, float("inf")))[1] <= now for w, s, _ in pairs):
            clock += 1
        return clock
