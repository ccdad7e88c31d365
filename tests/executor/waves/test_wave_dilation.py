"""Dilated mode of virtual workers: the numbers of full speed, each message in its planned time and order."""

import threading
from functools import partial

import pytest
import torch

from stagecut.executor.dilated.event_queue import EventQueue
from stagecut.executor.dilated.timer import Timer
from stagecut.executor.dilated.wave_dilation import WaveDilation
from stagecut.executor.waves.setting.data import sharded
from stagecut.executor.waves.setting.execution import WaveTraining
from stagecut.executor.waves.team import WaveTeam
from stagecut.planner.core.waves import LocalStep
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.simulator.waves.network import WaveKind
from stagecut.planner.simulator.waves.timeline import simulate_waves
from tests.executor.waves.wave_plans import MSE, check_close, layers, samples
from tests.wave_files import SPREAD, tiny_plan, tiny_problem
from tests.wave_workers import pushing

PLANS = {
    "servers": tiny_plan(clock_distance=0, owners=SPREAD),
    "all-reduce": tiny_plan(clock_distance=0, owners=()),
    "one step a wave": tiny_plan(clock_distance=0, local_step=LocalStep.WAVE),
}


def trained(plan, dilation=None):
    pace = {} if dilation is None else {"pace": dilation.pace, "channel": dilation.channel}
    training = WaveTraining(loss_fn=MSE, optimizer=partial(torch.optim.SGD, lr=0.1))
    team = WaveTeam(plan, layers(6), training, **pace)
    team.train(sharded(samples(32), plan), num_waves=3)
    return team.global_weights()


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_dilated_training_has_the_weights_of_full_speed(plan):
    """With D = 0 nothing depends on times. A thousandth of the planned times is a few milliseconds a wave."""
    dilation = WaveDilation(WaveCostModel(tiny_problem()).plan(plan))
    dilation.time_scale = 1e-3
    if plan is PLANS["all-reduce"]:  # the weights of worker 0, which lack what is under way in a wrapped channel
        trained(plan, dilation)
        assert dilation.reduced(0, 2).done()
        return
    check_close(trained(plan, dilation), trained(plan), tolerance=1e-12)


@pytest.mark.parametrize(
    ("pushes", "starts"),
    [
        (((2.0, "a"), (3.0, "a", "b"), (4.0, "b")), [2.0, 8.0, 4.0]),
        (((2.0, "a", "b"), (4.0, "a"), (3.0, "a", "b")), [2.0, 10.0, 6.0]),
        (((2.0, "a"), (3.0, "a"), (9.0, "a")), [2.0, 6.0, 10.0]),
    ],
)
def test_messages_get_their_links_by_the_simulators_rule(pushes, starts):
    """Derived in the simulator's tests; a hundredth of the times, and all requests are made before the first moment."""
    costs = pushing(*pushes)
    dilation = WaveDilation(costs)
    dilation.time_scale = 0.01
    begin_s = dilation.timer.now() + 0.5
    arrivals = [
        dilation.serve(WaveKind.PUSH, node, begin_s + 0.01 * ready_s, owner="h0")
        for node, (ready_s, *_) in enumerate(pushes)
    ]
    ends_s = [arrival.result(timeout=60) - begin_s for arrival in arrivals]
    assert ends_s == pytest.approx([0.01 * (start_s + 4.0) for start_s in starts])
    assert [span.start_s for number in range(3) for span in _pushed(costs, number)] == starts


def _pushed(costs, number):
    spans = simulate_waves(costs, num_waves=1).spans
    return [span for span in spans if span.kind is WaveKind.PUSH and span.worker == number]


def test_events_come_in_order_of_time_and_then_of_arrival():
    timer, seen, done = Timer(), [], threading.Event()
    events = EventQueue(timer)
    now_s = timer.now()
    events.at(now_s + 0.02, lambda: seen.append((3, events.now() - now_s)))
    events.at(now_s + 0.01, lambda: seen.append((1, events.now() - now_s)))
    events.at(now_s + 0.01, lambda: seen.append((2, events.now() - now_s)))
    events.at(now_s + 0.02, done.set)
    assert done.wait(timeout=60)
    assert [number for number, _ in seen] == [1, 2, 3]
    assert [due_s for _, due_s in seen] == pytest.approx([0.01, 0.01, 0.02])
