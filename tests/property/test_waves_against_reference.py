"""The simulator of waves and its reference give equal times, to the last bit."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.core.waves import Carrier, LocalStep
from stagecut.planner.cost.waves.wave_costs import WaveCosts
from stagecut.planner.simulator.waves.network import WaveKind
from stagecut.planner.simulator.waves.timeline import simulate_waves
from tests.reference_waves import Reference
from tests.wave_workers import random_wave_costs

WORDS = {
    WaveKind.FORWARD: "F",
    WaveKind.BACKWARD: "B",
    WaveKind.UPDATE: "U",
    WaveKind.ACTIVATIONS: "send F",
    WaveKind.GRADIENTS: "send B",
    WaveKind.PUSH: "push",
    WaveKind.PULL: "pull",
    WaveKind.ALL_REDUCE: "all-reduce",
}


@settings(max_examples=120)
@given(
    seed=st.integers(0, 2**32 - 1),
    carrier=st.sampled_from(Carrier),
    local_step=st.sampled_from(LocalStep),
    clock_distance=st.integers(0, 4),
    names=st.sampled_from([0, 1, 2, 3, 6]),
    style=st.sampled_from(["real", "whole", "rare"]),
)
def test_every_span_and_clock_of_a_run_equals_the_reference(seed, carrier, local_step, clock_distance, names, style):
    rng = np.random.default_rng(seed)
    costs = random_wave_costs(
        rng, carrier=carrier, local_step=local_step, clock_distance=clock_distance, names=names, style=style
    )
    spans, clocks = _played(costs, 4)
    reference = Reference(costs, 4)
    reference.run()
    assert spans == {_flat(key): span for key, span in reference.spans.items()}
    assert clocks == reference.clocks


def _played(costs: WaveCosts, num_waves: int) -> tuple[dict, dict]:
    timeline = simulate_waves(costs, num_waves=num_waves)
    spans, clocks = {}, {}
    for span in timeline.spans:
        key = (WORDS[span.kind], span.worker, span.stage, span.number)
        if span.kind in {WaveKind.PUSH, WaveKind.PULL}:
            key = (*key, timeline.flows[span.flow].owner)
        if span.kind is WaveKind.ALL_REDUCE:
            key = (WORDS[span.kind], *timeline.flows[span.flow].layers, span.number)
        if span.kind is WaveKind.UPDATE and span.end_s == span.start_s and costs.plan.local_step is LocalStep.WAVE:
            continue
        spans[key] = (span.start_s, span.end_s)
        if span.kind in {WaveKind.FORWARD, WaveKind.PULL}:
            clocks[key] = span.clock
    return spans, clocks


def _flat(key: tuple) -> tuple:
    kind, *rest = key
    return ("U" if kind == "flush" else kind, *rest)
