"""Throughput in the long run: the period of a run without end, found where its state returns."""

import math
from collections import defaultdict
from dataclasses import dataclass, replace

from stagecut.planner.core.numerics.tolerances import EQUAL_STATES
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.waves import Carrier, LocalStep
from stagecut.planner.cost.waves.wave_costs import WaveCosts, WorkerCosts
from stagecut.planner.simulator.waves.network import NONE, WaveNetwork, network_of
from stagecut.planner.simulator.waves.play import ENDS, Play

MOST_WAVES, MOST_EVENTS = 1000, 400_000
"""Where the search for a period gives up."""
LEAST_WAVES = 4
"""Waves that are played in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Seconds of waiting of all stages of a worker together, per wave."""

    gate_s: float
    """At gates, for the other workers."""
    pipeline_s: float
    """For neighbours to compute and to transfer."""
    link_s: float
    """For messages of neighbours that queue behind others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState:
    """What a run without end comes to."""

    first_wave: int
    """Waves that all workers have ended before the period: the start-up."""
    num_waves: int
    """Waves of every worker in one period."""
    period_s: float
    is_exact: bool
    """Whether the state did return; else this is the second half of what was played."""
    samples_per_wave: int
    """Of all workers."""
    waits: tuple[Waits, ...]
    """Of each worker."""
    carried: tuple[float, ...]
    """Messages per wave of each flow of the network."""
    crossing_bytes: float
    """Bytes across hosts per minibatch, over all workers."""

    @property
    def wave_s(self) -> float:
        """Seconds per wave."""
        return self.period_s / self.num_waves

    @property
    def samples_per_s(self) -> float:
        """Throughput of all workers."""
        return self.samples_per_wave / self.wave_s if self.period_s > 0 else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """A run when the last worker has just ended a wave."""

    wave: int
    now: float
    seconds: tuple[float, ...]
    """What is left until each event, and until each link is free; how long stages and messages have waited."""
    waits: tuple[tuple[float, ...], ...]
    carried: tuple[int, ...]


def steady_state(costs: WaveCosts, *, most_waves: int = MOST_WAVES) -> SteadyState:
    """Find what a run comes to in the long run.

    All there is to know of a run when the last worker ends a wave, counted from that wave and that moment, is its
    state: what is in flight, what waits, which waves everyone has. If a state returns, up to the rounding of times,
    everything after it repeats: the time between is a period. Without shared links that happens after a finite start-up
    (times are sums and maxima); with them it is the rule, not a theorem. A fast worker also takes about D / (its lead
    per wave) waves until it meets the gate. Where no state returns within `most_waves` waves or `MOST_EVENTS` events,
    the slowest worker's second half of what was played is taken for a period.
    """
    play = Play(network_of(costs))
    moments: dict[tuple[int, ...], list[_Moment]] = defaultdict(list)
    for wave in range(1, most_waves + 1):
        play.run(wave)
        counts, moment = _moment(play, wave)
        for before in reversed(moments[counts]):
            if _returns(before, moment):
                return _between(play.network, before, moment)
        moments[counts].append(moment)
        if play.num_events >= MOST_EVENTS and wave >= LEAST_WAVES:
            break
    return _second_half(play, [each for own in moments.values() for each in own])


def worker_rate(costs: WorkerCosts, *, local_step: LocalStep = LocalStep.MINIBATCH) -> float:
    """Samples per second of one worker without any others: a closed pipeline with N_m tokens.

    Where workers share no links, others only make it wait, and in no plan it makes more. Where they do, that is the
    rule, not a theorem: first come, first served is not optimal.
    """
    # Alone, waves without a flush make no difference: states are compared after each minibatch.
    wave = costs.worker.wave if local_step is LocalStep.WAVE else 1
    worker = replace(costs.worker, wave=wave)
    none = ((),) * worker.num_stages
    alone = replace(costs, worker=worker, exchanges=none)
    plan = WavePlan(workers=(worker,), local_step=local_step, carrier=Carrier.DELAYED_ALL_REDUCE)
    return steady_state(WaveCosts(plan=plan, workers=(alone,))).samples_per_s


def _moment(play: Play, wave: int) -> tuple[tuple[int, ...], _Moment]:
    """The state of a run: counts relative to the wave, and seconds from now."""
    counts: list[int] = []
    seconds: list[float] = []
    for node, own in enumerate(play.nodes):
        first = wave * own.wave
        counts += (play.forwards[node] - first, play.backwards[node] - first, play.waiting[node])
        if play.waiting[node] != NONE:
            seconds.append(play.now - play.since[node])  # so that a period has the waits of every other one
        if own.exchanges:
            counts += (play.seen[node] - wave, play.clock[node] - wave)
        counts += [play.arrived[flow] - first for flow in (own.activations, own.gradients) if flow != NONE]
    for flow, reducing in enumerate(play.reducing):
        counts.append(play.arrived[flow] - wave)
        for reduced, (count, since) in sorted(reducing.items()):
            counts += (reduced - wave, count)
            seconds.append(since - play.now)
    servers = play.servers
    counts += [pushed - wave for pushed in servers.pushed]
    counts += [copy - wave for copy in servers.copy]
    for requests in servers.requests:
        counts += [part for pair, gate in sorted(requests) for part in (pair, gate - wave)]
    counts += [reply - wave for reply in servers.replies]
    # By what they are about, not by time: the order of simultaneous events may change with rounding.
    for code, is_message, time, ready in sorted(
        (code, ready != ENDS, time, ready) for time, ready, _, code, _ in play.heap
    ):
        counts += (code, is_message)
        seconds += (time - play.now, play.now - ready if is_message else 0.0)
    seconds += [free - play.now for free in play.free]
    moment = _Moment(
        wave=wave,
        now=play.now,
        seconds=tuple(max(0.0, left) for left in seconds),
        waits=tuple(map(tuple, play.waits)),
        carried=tuple(play.carried),
    )
    return tuple(counts), moment


def _returns(before: _Moment, after: _Moment) -> bool:
    """Whether times agree, up to rounding; the counts do."""
    slack = EQUAL_STATES * (after.now - before.now)
    return all(abs(a - b) <= slack for a, b in zip(before.seconds, after.seconds, strict=True))


def _between(network: WaveNetwork, before: _Moment, after: _Moment) -> SteadyState:
    """One period, from a moment to another."""
    num_waves, plan = after.wave - before.wave, network.costs.plan
    waits = zip(before.waits, after.waits, strict=True)
    carried = tuple((b - a) / num_waves for a, b in zip(before.carried, after.carried, strict=True))
    crossing_bytes = sum(count * flow.crossing_bytes for count, flow in zip(carried, network.flows, strict=True))
    return SteadyState(
        first_wave=before.wave,
        num_waves=num_waves,
        period_s=after.now - before.now,
        is_exact=True,
        samples_per_wave=plan.samples_per_wave,
        waits=tuple(_waits(*pair, num_waves) for pair in waits),
        carried=carried,
        crossing_bytes=crossing_bytes / sum(worker.wave for worker in plan.workers),
    )


def _waits(before: tuple[float, ...], after: tuple[float, ...], num_waves: int) -> Waits:
    gate_s, pipeline_s, link_s = ((b - a) / num_waves for a, b in zip(before, after, strict=True))
    return Waits(gate_s=gate_s, pipeline_s=pipeline_s, link_s=link_s)


def _second_half(play: Play, moments: list[_Moment]) -> SteadyState:
    moments.sort(key=lambda moment: moment.wave)
    found = _between(play.network, moments[len(moments) // 2 - 1], moments[-1])
    waves_s = []
    for number, ends in enumerate(play.wave_ends):
        last = play.num_done[number] - 1
        waves_s.append((ends[last] - ends[last // 2]) / max(1, last - last // 2))
    return replace(found, is_exact=False, period_s=max(waves_s) * found.num_waves)
