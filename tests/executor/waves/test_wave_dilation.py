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
from stagecut.planner.cost.wave_costs import WaveCostModel
from stagecut.planner.simulator.waves.network import WaveKind
from tests.executor.waves.wave_plans import MSE, check_close, layers, samples
from tests.wave_files import SPREAD, tiny_plan, tiny_problem

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


def test_messages_queue_for_the_links_of_their_route():
    """Of two pushes of a stage over one link the second begins when the first ends, or later if it is ready later."""
    dilation = WaveDilation(WaveCostModel(tiny_problem()).plan(PLANS["servers"]))
    flow = next(flow for flow in dilation.network.flows if flow.kind is WaveKind.PUSH)
    ends = [dilation.serve(flow.kind, flow.node, ready_s, owner=flow.owner) for ready_s in (1.0, 1.0, 100.0)]
    assert ends == pytest.approx([1 + flow.seconds, 1 + 2 * flow.seconds, 100 + flow.seconds])


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
