"""A run of some waves, with everything that happens in it, and what it comes to in the long run."""

from dataclasses import dataclass

from stagecut.planner.core.waves import LocalStep
from stagecut.planner.cost.waves.wave_all_reduces import Route
from stagecut.planner.cost.waves.wave_costs import WaveCosts, WorkerCosts
from stagecut.planner.simulator.waves.network import WaveKind, network_of
from stagecut.planner.simulator.waves.play import Play, WaveSpan
from stagecut.planner.simulator.waves.steady import SteadyState, steady_state

COMPUTATION = frozenset({WaveKind.FORWARD, WaveKind.BACKWARD, WaveKind.UPDATE})
SHOWN_WAVES = 3
"""Waves shown after the start-up, unless a period has more."""
MOST_SHOWN_WAVES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveFlow:
    """Messages of one kind that follow one another over the same links."""

    kind: WaveKind
    worker: int
    stage: int
    links: Route
    """Names of the links that a message occupies; none if it has a path of its own."""
    owner: str
    """The server's host of pushes and pulls, else empty."""
    layers: tuple[int, int] | None
    """The run [start, stop) of an all-reduce, whose worker and stage are the first that take part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveTimeline:
    """All workers from the start of training to its end after `num_waves` waves, and their steady state."""

    costs: WaveCosts
    num_waves: int
    spans: tuple[WaveSpan, ...]
    """In order of start; at most one at a time on each stage and each link."""
    flows: tuple[WaveFlow, ...]
    """By `WaveSpan.flow`."""
    wave_ends_s: tuple[tuple[float, ...], ...]
    """By worker and wave: when all its stages have made the local step of the wave's last minibatch; with one step a
    wave, the steps without which its next wave cannot begin."""
    end_s: float
    """When everything has ended."""
    busy_share: tuple[tuple[float, ...], ...]
    """By worker and stage, share of the steady state in which it computes."""
    steady: SteadyState

    @property
    def steps_by_wave(self) -> bool:
        """Whether local steps are numbered by waves, not by minibatches."""
        return self.costs.plan.local_step is LocalStep.WAVE

    @property
    def samples_per_s(self) -> float:
        """Throughput of all workers in the long run, without start-up."""
        return self.steady.samples_per_s

    @property
    def bytes_across_hosts(self) -> float:
        """Bytes between hosts per minibatch in the long run."""
        return self.steady.crossing_bytes


def simulate_waves(costs: WaveCosts, *, num_waves: int | None = None) -> WaveTimeline:
    """Simulate a plan of virtual workers, all of them at once.

    Parameters
    ----------
    num_waves
        Waves that each worker makes in `spans`. None: the start-up and a period, at least `SHOWN_WAVES` and at most
        `MOST_SHOWN_WAVES`. The throughput does not depend on it: see
        :func:`~stagecut.planner.simulator.waves.steady.steady_state`.
    """
    steady = steady_state(costs)
    if num_waves is None:
        num_waves = min(MOST_SHOWN_WAVES, max(SHOWN_WAVES, steady.first_wave + steady.num_waves + 1))
    network = network_of(costs)
    play = Play(network, num_waves=num_waves, record=True)
    play.run(num_waves + 1)  # to the end: no worker has that many
    spans = sorted(play.spans or (), key=lambda span: (span.start_s, span.end_s))
    nodes = network.nodes
    return WaveTimeline(
        costs=costs,
        num_waves=num_waves,
        spans=tuple(spans),
        flows=tuple(
            WaveFlow(
                kind=flow.kind,
                worker=nodes[flow.node].worker,
                stage=nodes[flow.node].stage,
                links=flow.route,
                owner=flow.owner,
                layers=flow.layers,
            )
            for flow in network.flows
        ),
        wave_ends_s=tuple(map(tuple, play.wave_ends)),
        end_s=max(span.end_s for span in spans),
        busy_share=tuple(_busy_share(own, steady, flushes=network.flushes) for own in costs.workers),
        steady=steady,
    )


def _busy_share(costs: WorkerCosts, steady: SteadyState, *, flushes: bool) -> tuple[float, ...]:
    """Share of a wave in which each stage computes."""
    wave, num_updates = costs.worker.wave, 1 if flushes else costs.worker.wave
    busy_s = wave * (costs.forward_s + costs.backward_s) + num_updates * costs.update_s
    return tuple((busy_s / steady.wave_s).tolist()) if steady.wave_s > 0 else (1.0,) * len(busy_s)
