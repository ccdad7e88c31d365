"""Two workers small enough to follow on paper, and what a steady state is made of.

Both have one stage and waves of one minibatch. The first one takes 1 + 1 s and the second one 2 + 2 s for a forward and
a backward; a push takes 0.5 s, a pull 0.25 s, on links of their own. With D = 0:

    fast: F1 0-1, B1 1-2, push 2-2.5           pull 4.5-4.75, F2 4.75-5.75 ...
    slow: F1 0-2, B1 2-4, push 4-4.5           pull 4.5-4.75, F2 4.75-6.75 ...

The server's clock is 1 from 4.5 s on, and every wave takes 4.75 s.
"""

from dataclasses import replace

import numpy as np
import pytest

from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.waves import Carrier, LocalStep
from stagecut.planner.cost.waves.wave_costs import Exchange, WaveCosts
from stagecut.planner.simulator.waves.network import WaveKind
from stagecut.planner.simulator.waves.steady import Waits, steady_state, worker_rate
from stagecut.planner.simulator.waves.timeline import simulate_waves
from tests.wave_workers import all_reduces, pushing, served, virtual_worker, worker_costs


def two(*, distance=0, local_step=LocalStep.MINIBATCH, update_s=0.0):
    workers = tuple(virtual_worker(name, [0, 1], in_flight=1) for name in ("fast", "slow"))
    plan = WavePlan(workers=workers, clock_distance=distance, local_step=local_step, owners=("h0",))
    costs = tuple(
        worker_costs(
            worker,
            forward_s=[s],
            backward_s=[s],
            update_s=update_s,
            exchanges=served(worker, ("h0",), push_s=0.5, pull_s=0.25),
        )
        for worker, s in zip(workers, (1.0, 2.0), strict=True)
    )
    return WaveCosts(plan=plan, workers=costs)


def _spans(timeline, kind, worker):
    return [span[3:6] for span in timeline.spans if span.kind is kind and span.worker == worker]


def test_a_fast_worker_waits_at_the_gate_for_the_slow_one():
    timeline = simulate_waves(two(), num_waves=2)
    assert _spans(timeline, WaveKind.FORWARD, 0) == [(1, 0.0, 1.0), (2, 4.75, 5.75)]
    assert _spans(timeline, WaveKind.FORWARD, 1) == [(1, 0.0, 2.0), (2, 4.75, 6.75)]
    assert _spans(timeline, WaveKind.PUSH, 0) == [(0, 2.0, 2.5), (1, 6.75, 7.25)]
    assert _spans(timeline, WaveKind.PULL, 0) == [(1, 4.5, 4.75)]
    assert timeline.wave_ends_s == ((2.0, 6.75), (4.0, 8.75))


def test_the_steady_state_is_a_wave_of_every_worker():
    """The fast worker waits from 2 to 4.75 s, the slow one from 4 to 4.75 s."""
    timeline = simulate_waves(two())
    assert timeline.steady.is_exact
    assert timeline.steady.wave_s == pytest.approx(4.75)
    assert timeline.samples_per_s == pytest.approx(2 / 4.75)
    assert [waits.gate_s for waits in timeline.steady.waits] == pytest.approx([2.75, 0.75])
    assert timeline.busy_share == (pytest.approx((2 / 4.75,)), pytest.approx((4 / 4.75,)))


def test_a_clock_distance_hides_the_push_but_not_the_slow_worker():
    """With D = 1 a stage asks at the end of its own push for what others have pushed long before, so it waits 0.75 s
    where it has to ask: every second wave, as the reply of that wave may hold a wave more than asked for.

    Slow: F1 0-2, B1 2-4, push -4.5, F2 4-6, B2 6-8, push -8.5, pull -8.75: (8.75 - 0) s for two waves.
    """
    steady = steady_state(two(distance=1))
    assert steady.num_waves == 2
    assert steady.period_s == pytest.approx(8.75)


def test_one_step_a_wave_stands_behind_the_exchange():
    """The gradients are back at 4.75 s, and a step takes 0.25 s: 5 s a wave."""
    timeline = simulate_waves(two(local_step=LocalStep.WAVE, update_s=0.25), num_waves=2)
    assert _spans(timeline, WaveKind.UPDATE, 0) == [(0, 4.75, 5.0), (1, 9.75, 10.0)]
    assert timeline.wave_ends_s == ((5.0, 10.0), (5.0, 10.0))


def test_a_pull_takes_as_long_as_the_gradients_of_its_waves():
    """One step a wave, D = 1: the slow worker's push of wave 1 arrives at 8.5 s. The fast one has pushed waves 0 and 1
    by 4.5 s and asked for clock 1, which the slow one's wave 0 gives at 4.5 s: a pull of one wave. The gate of wave 3
    asks for clock 2, at 8.5 s; so does the slow one's request of then, for clock 1, which has two waves: 0.5 s.
    """
    timeline = simulate_waves(two(distance=1, local_step=LocalStep.WAVE), num_waves=3)
    assert _spans(timeline, WaveKind.PULL, 0)[:2] == [(2, 4.5, 4.75), (3, 8.5, 8.75)]
    assert _spans(timeline, WaveKind.PULL, 1)[:1] == [(2, 8.5, 9.0)]


def _reduced(num_stages, updates_s):
    """Workers with a minibatch a wave and 1 s for each forward and backward; all-reduces of 2 s on the same links."""
    plan = WavePlan(
        workers=tuple(virtual_worker(f"w{n}", range(num_stages + 1), in_flight=1) for n in range(len(updates_s))),
        carrier=Carrier.DELAYED_ALL_REDUCE,
    )
    workers = tuple(
        worker_costs(worker, forward_s=[1.0] * num_stages, backward_s=[1.0] * num_stages, update_s=update_s)
        for worker, update_s in zip(plan.workers, updates_s, strict=True)
    )
    return WaveCosts(
        plan=plan, workers=workers, all_reduces=all_reduces(plan, [2.0] * num_stages, [("nic",)] * num_stages)
    )


def test_an_all_reduce_is_one_operation_of_all_its_members():
    """Three workers have their updates at 2, 3 and 5 s: one all-reduce from 5 to 7 s, then the gates of all."""
    timeline = simulate_waves(_reduced(1, (0.0, 1.0, 3.0)), num_waves=2)
    assert _spans(timeline, WaveKind.ALL_REDUCE, 0)[0] == (0, 5.0, 7.0)
    assert [_spans(timeline, WaveKind.FORWARD, worker)[1] for worker in range(3)] == [(2, 7.0, 8.0)] * 3
    assert sum(span.kind is WaveKind.ALL_REDUCE for span in timeline.spans) == 2


def test_all_reduces_take_turns_on_a_link():
    """The last stages are ready at 3 s, the first ones at 4 s, when the link is busy until 5 s."""
    timeline = simulate_waves(_reduced(2, (0.0, 0.0)), num_waves=1)
    assert [span[3:6] for span in timeline.spans if span.kind is WaveKind.ALL_REDUCE] == [(0, 3.0, 5.0), (0, 5.0, 7.0)]


def test_a_push_takes_its_turn_on_a_shared_link():
    """Both workers are alike and push over one link: the second push and what waits for it is 0.5 s later."""
    costs = two()
    over_one = tuple(
        replace(costs.workers[0], worker=own.worker, exchanges=((replace(own.exchanges[0][0], push_links=("nic",)),),))
        for own in costs.workers
    )
    timeline = simulate_waves(replace(costs, workers=over_one), num_waves=1)
    assert [_spans(timeline, WaveKind.PUSH, worker) for worker in (0, 1)] == [[(0, 2.0, 2.5)], [(0, 2.5, 3.0)]]


def _push_starts(*pushes):
    timeline = simulate_waves(pushing(*pushes), num_waves=1)
    return [_spans(timeline, WaveKind.PUSH, number)[0][1] for number in range(len(pushes))]


def test_a_message_that_waits_for_a_link_does_not_reserve_its_other_one():
    """The first push has link a from 2 to 6 s. The second one, ready at 3 s, waits for it, and the third one, ready at
    4 s, has b until 8 s, when the second one begins.
    """
    assert _push_starts((2.0, "a"), (3.0, "a", "b"), (4.0, "b")) == [2.0, 8.0, 4.0]


def test_of_messages_that_could_be_granted_at_once_the_one_that_became_ready_first_goes():
    """Both others wait until the first one leaves links a and b at 6 s: the last one since 3 s, the other since 4 s."""
    assert _push_starts((2.0, "a", "b"), (4.0, "a"), (3.0, "a", "b")) == [2.0, 10.0, 6.0]


def test_of_messages_ready_at_once_that_of_the_earlier_action_goes_first():
    """The middle stage runs B1, then F4 in no time: gradients 1 and activations 4 are ready at once on one link."""
    worker = virtual_worker("w", [0, 1, 2, 3], in_flight=4)
    routes = {"forward_links": ((), ("nic",)), "backward_links": (("nic",), ())}
    costs = worker_costs(worker, forward_s=[0, 0, 4], backward_s=[1, 1, 1], transfer_s=1.0, **routes)
    plan = WavePlan(workers=(worker,), carrier=Carrier.DELAYED_ALL_REDUCE)
    timeline = simulate_waves(WaveCosts(plan=plan, workers=(costs,)), num_waves=1)
    start = {(span.kind, span.stage, span.number): span.start_s for span in timeline.spans}
    # F1 on the last stage from 2 to 6, B1 to 7, its gradients to 8, B1 of the middle stage to 9.
    assert start[WaveKind.FORWARD, 1, 4] == start[WaveKind.GRADIENTS, 1, 1] == 9.0
    assert start[WaveKind.ACTIVATIONS, 1, 4] == 10.0


def test_waits_for_links_are_told_from_waits_for_the_pipeline():
    """One minibatch in flight over two stages: 1 s there, 3 s back, transfers of 0.5 s that share no link."""
    worker = virtual_worker("w", [0, 1, 2], in_flight=1)
    costs = worker_costs(worker, forward_s=[1, 1], backward_s=[1, 1], transfer_s=0.5)
    plan = WavePlan(workers=(worker,), carrier=Carrier.DELAYED_ALL_REDUCE)
    steady = steady_state(WaveCosts(plan=plan, workers=(costs,)))
    # Each stage computes 2 s of 5 s.
    assert steady.waits == (Waits(gate_s=0.0, pipeline_s=pytest.approx(6.0), link_s=0.0),)


def test_bytes_across_hosts_are_counted_per_minibatch():
    """Of the fast worker a push of 6 bytes and a pull of 3 bytes cross; the slow one is on the server's host. A wave
    has two minibatches, one of each.
    """
    exchange = Exchange(
        owner="h1",
        push_s=0.5,
        pull_s=0.25,
        push_links=("h0:nic-out", "h1:nic-in"),
        pull_links=("h1:nic-out", "h0:nic-in"),
        push_bytes=6.0,
        pull_bytes=3.0,
    )
    costs = two()
    remote = replace(costs.workers[0], exchanges=((exchange,),))
    local = replace(costs.workers[1], exchanges=((replace(exchange, push_links=(), pull_links=()),),))
    timeline = simulate_waves(replace(costs, workers=(remote, local)))
    assert timeline.steady.is_exact
    assert timeline.bytes_across_hosts == pytest.approx(9 / 2)


def test_stages_of_no_duration_have_unlimited_throughput():
    worker = virtual_worker("w", [0, 1, 2], in_flight=2)
    assert worker_rate(worker_costs(worker, forward_s=[0, 0], backward_s=[0, 0])) == np.inf


def test_a_search_that_gives_up_measures_the_slowest_worker():
    """The fast worker's lead grows by 1 s a wave until D = 1000 stops it; the slow one makes a wave in 4 s."""
    steady = steady_state(two(distance=1000), most_waves=50)
    assert not steady.is_exact
    assert steady.wave_s == pytest.approx(4.0)
