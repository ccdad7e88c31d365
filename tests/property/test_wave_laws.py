"""Laws of virtual workers that train through waves."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.waves import Carrier, LocalStep
from stagecut.planner.cost.waves.wave_costs import WaveCosts
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.simulator.waves.network import WaveKind, network_of
from stagecut.planner.simulator.waves.play import Play
from stagecut.planner.simulator.waves.steady import steady_state, worker_rate
from stagecut.planner.simulator.waves.timeline import WaveTimeline, simulate_waves
from tests.pipelines import random_costs, random_routes, random_seconds
from tests.wave_workers import all_reduces, random_wave_costs, served, virtual_worker, worker_costs

seeds = st.integers(0, 2**32 - 1)
distances = st.integers(0, 4)
num_names = st.sampled_from([0, 1, 3, 6])
PLAIN = [schedule for schedule in Schedule if schedule is not Schedule.INTERLEAVED]


def _random(seed, *, distance, names=0, style="real", carrier=Carrier.PARAMETER_SERVER, step=LocalStep.MINIBATCH):
    return random_wave_costs(
        np.random.default_rng(seed),
        carrier=carrier,
        local_step=step,
        clock_distance=distance,
        names=names,
        style=style,
    )


def _ends(costs: WaveCosts, num_waves: int) -> list[list[float]]:
    play = Play(network_of(costs), num_waves=num_waves)
    play.run(num_waves + 1)
    return play.wave_ends


def _worst(timeline: WaveTimeline, worker: int) -> list[int]:
    """Most minibatches of each other worker that the weights of a minibatch lack."""
    plan = timeline.costs.plan
    rule = plan.rule_of(plan.workers[worker])
    forwards = [span for span in timeline.spans if span.kind is WaveKind.FORWARD and span.worker == worker]
    assert all(span.clock >= rule.least_clock(span.number) for span in forwards)
    return [
        max(rule.num_missing(span.number, span.clock, other=other.wave) for span in forwards)
        for other in plan.others(worker)
    ]


@settings(max_examples=35)
@given(
    seed=seeds, distance=distances, names=num_names, carrier=st.sampled_from(Carrier), step=st.sampled_from(LocalStep)
)
def test_no_minibatch_is_staler_than_the_bound(seed, distance, names, carrier, step):
    costs = _random(seed, distance=distance, names=names, carrier=carrier, step=step)
    assume(len(costs.workers) > 1)
    timeline = simulate_waves(costs, num_waves=8)
    for number in range(len(costs.plan.workers)):
        bounds = costs.plan.staleness_of_others(number)
        others = bounds[:number] + bounds[number + 1 :]
        assert all(worst <= bound for worst, bound in zip(_worst(timeline, number), others, strict=True))


@pytest.mark.parametrize("carrier", Carrier)
@pytest.mark.parametrize(
    ("in_flight", "distance", "expected"),
    [
        *((1, 0, 0), (1, 1, 1), (1, 4, 4)),
        *((2, 0, 2), (2, 1, 4), (2, 4, 10)),
        *((4, 0, 6), (4, 1, 10), (4, 4, 22)),
        *((6, 0, 10), (6, 1, 16), (6, 4, 34)),
    ],
)
def test_a_fast_worker_beside_a_slow_one_reaches_the_bound(in_flight, distance, expected, carrier):
    """HetPipe's (D + 1)(s + 1) + s - 1 with s = N_m - 1: a fast worker always has the least clock it may have."""
    timeline = simulate_waves(_unlike(20.0, in_flight=in_flight, distance=distance, carrier=carrier), num_waves=12)
    assert _worst(timeline, 0) == [expected]


def _unlike(speed, *, in_flight, distance, carrier=Carrier.PARAMETER_SERVER, push_s=0.01, pull_s=0.01):
    """Two workers of two stages, the first one so many times as fast."""
    is_served = carrier is Carrier.PARAMETER_SERVER
    workers = tuple(virtual_worker(name, [0, 1, 2], in_flight=in_flight) for name in ("fast", "slow"))
    owners = ("h0", "h1") if is_served else ()
    costs = tuple(
        worker_costs(
            worker,
            forward_s=[1 / s] * 2,
            backward_s=[2 / s] * 2,
            exchanges=served(worker, owners, push_s=push_s, pull_s=pull_s) if is_served else None,
        )
        for worker, s in zip(workers, (speed, 1.0), strict=True)
    )
    plan = WavePlan(workers=workers, clock_distance=distance, carrier=carrier, owners=owners)
    return WaveCosts(plan=plan, workers=costs, all_reduces=() if is_served else all_reduces(plan, [0.01, 0.01]))


@settings(max_examples=35)
@given(seed=seeds, names=num_names)
def test_a_minibatch_takes_no_less_than_stages_links_and_round_trips(seed, names):
    """Stage s has k_s minibatches in flight from its forward to its local step: k_s T >= the way there and back."""
    costs = _random(seed, distance=0, names=names).workers[0]
    period_s = 1 / worker_rate(costs)
    computed_s = costs.forward_s + costs.backward_s + costs.update_s
    bounds_s = computed_s.tolist()
    for name in {name for route in (*costs.forward_links, *costs.backward_links) for name in route}:
        used = [[name in route for route in routes] for routes in (costs.forward_links, costs.backward_links)]
        bounds_s.append(float(costs.transfer_s @ np.sum(used, axis=0)))
    for s, stage in enumerate(costs.worker.stages):
        way_s = (costs.forward_s + costs.backward_s)[s:].sum() + 2 * costs.transfer_s[s:].sum() + costs.update_s[s]
        bounds_s.append(float(way_s) / stage.warmup_depth)
    assert period_s >= max(bounds_s) * (1 - 1e-9)


@settings(max_examples=20)
@given(seed=seeds, stages=st.integers(1, 4))
def test_one_minibatch_at_a_time_takes_the_sum_of_all_times(seed, stages):
    """Local steps of later stages are over before their next forward arrives; here only the first stage has one."""
    rng = np.random.default_rng(seed)
    worker = virtual_worker("w", range(stages + 1), in_flight=1)
    times = {name: random_seconds(rng, stages, "real") for name in ("forward_s", "backward_s", "update_s")}
    times["update_s"][1:] = 0.0
    times["transfer_s"] = random_seconds(rng, stages - 1, "real")
    total_s = sum(own.sum() for own in times.values()) + times["transfer_s"].sum()
    assert worker_rate(worker_costs(worker, **times)) == pytest.approx(1 / total_s, rel=1e-12)


@settings(max_examples=35)
@given(seed=seeds, stages=st.integers(1, 5), wave=st.integers(1, 8), names=num_names, schedule=st.sampled_from(PLAIN))
def test_a_wave_of_one_worker_with_a_flush_is_a_synchronous_iteration(seed, stages, wave, names, schedule):
    """Also to the last bit: both simulators add and take maxima of the same numbers, where no message waits for one
    link and reserves another one meanwhile.
    """
    rng = np.random.default_rng(seed)
    routes = tuple(route[:1] for route in random_routes(rng, 2 * (stages - 1), names=names))
    plan = random_costs(rng, (*routes, *((),) * stages), schedule=schedule, micro_batches=wave, style="real")
    plan = replace(plan, sync_s=np.zeros(stages))
    worker = virtual_worker("w", range(stages + 1), in_flight=wave, depths=plan.warmup_depth.tolist())
    names_of = ("forward_s", "backward_s", "update_s", "transfer_s", "forward_links", "backward_links")
    costs = worker_costs(worker, **{name: getattr(plan, name) for name in names_of})
    alone = WavePlan(workers=(worker,), local_step=LocalStep.WAVE, carrier=Carrier.DELAYED_ALL_REDUCE)
    ends = _ends(WaveCosts(plan=alone, workers=(costs,)), 2)
    assert ends[0][0] == float(iteration_times([plan])[0])


@settings(max_examples=30)
@given(seed=seeds, distance=distances, step=st.sampled_from(LocalStep))
def test_a_larger_clock_distance_never_delays_an_all_reduce(seed, distance, step):
    """Without shared links: the gate of wave c waits for one all-reduce, of the earlier wave c - 1 - D."""
    costs = _random(seed, distance=distance, carrier=Carrier.DELAYED_ALL_REDUCE, step=step)
    further = replace(costs, plan=replace(costs.plan, clock_distance=distance + 1))
    _assert_no_later(_ends(further, 7), _ends(costs, 7))


@settings(max_examples=30)
@given(seed=seeds, distance=distances)
def test_a_larger_clock_distance_never_delays_workers_that_reach_their_servers_at_once(seed, distance):
    """Where pushes and pulls take time, another clock distance may put a pull into another wave."""
    costs = _random(seed, distance=distance)
    at_once = tuple(
        replace(
            own,
            exchanges=tuple(tuple(replace(e, push_s=0.0, pull_s=0.0) for e in stage) for stage in own.exchanges),
        )
        for own in costs.workers
    )
    costs = replace(costs, workers=at_once)
    further = replace(costs, plan=replace(costs.plan, clock_distance=distance + 1))
    _assert_no_later(_ends(further, 7), _ends(costs, 7))


def _assert_no_later(first: list[list[float]], second: list[list[float]]) -> None:
    for own, other in zip(first, second, strict=True):
        assert all(a <= b for a, b in zip(own, other, strict=True))


@settings(max_examples=35)
@given(
    seed=seeds, distance=distances, names=num_names, carrier=st.sampled_from(Carrier), step=st.sampled_from(LocalStep)
)
def test_a_state_that_returns_returns_again(seed, distance, names, carrier, step):
    """From the period found on, every wave of every worker ends one period after the one a period earlier."""
    costs = _random(seed, distance=distance, names=names, carrier=carrier, step=step)
    steady = steady_state(costs)
    assume(steady.is_exact and steady.first_wave + 3 * steady.num_waves < 100)
    play = Play(network_of(costs))
    play.run(steady.first_wave + 3 * steady.num_waves + 2 * distance + 4)
    for worker, ends in enumerate(play.wave_ends):
        known = np.array(ends[steady.first_wave + distance + 2 : play.num_done[worker]])
        apart = known[steady.num_waves :] - known[: -steady.num_waves]
        assert apart == pytest.approx(np.full(len(apart), steady.period_s), rel=1e-8)


@settings(max_examples=25)
@given(
    seed=seeds, distance=distances, names=num_names, carrier=st.sampled_from(Carrier), step=st.sampled_from(LocalStep)
)
def test_a_run_without_end_begins_like_a_long_one(seed, distance, names, carrier, step):
    """Until a stage of the long run has made its last forward, and so runs backwards where others would follow."""
    costs = _random(seed, distance=distance, names=names, carrier=carrier, step=step)
    timeline = simulate_waves(costs, num_waves=8)
    last = {(span.worker, span.stage): span.end_s for span in timeline.spans if span.kind is WaveKind.FORWARD}
    play = Play(network_of(costs))
    play.run(8)
    for own, endless in zip(timeline.wave_ends_s, play.wave_ends, strict=True):
        assert [end for end in own if end < min(last.values())] == [end for end in endless if end < min(last.values())]


@settings(max_examples=25)
@given(seed=seeds, distance=distances, step=st.sampled_from(LocalStep))
def test_no_worker_is_faster_than_alone(seed, distance, step):
    """Without shared links others only make a worker wait; with a flush the exchange stands before the step."""
    costs = _random(seed, distance=distance, step=step)
    assume(len(costs.workers) > 1)
    waves_per_s = steady_state(costs).samples_per_s / costs.plan.samples_per_wave
    for own in costs.workers:
        assert waves_per_s * own.worker.samples_per_wave <= worker_rate(own, local_step=step) * (1 + 1e-9)


@settings(max_examples=20)
@given(seed=seeds, distance=distances, names=num_names, step=st.sampled_from(LocalStep))
def test_stages_compute_or_wait_all_the_time(seed, distance, names, step):
    costs = _random(seed, distance=distance, names=names, step=step)
    timeline = simulate_waves(costs, num_waves=1)
    steady = timeline.steady
    assume(steady.is_exact)
    for own, busy, waits in zip(costs.workers, timeline.busy_share, steady.waits, strict=True):
        total_s = own.worker.num_stages * steady.wave_s
        waited_s = waits.gate_s + waits.pipeline_s + waits.link_s
        assert sum(busy) * steady.wave_s + waited_s == pytest.approx(total_s, rel=1e-6, abs=1e-9)
