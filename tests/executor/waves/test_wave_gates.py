"""What happens at a gate, in the order of the simulator."""

import threading
from functools import partial

import torch

from stagecut.executor.waves.carriers.channels import Channel
from stagecut.executor.waves.setting.execution import WaveTraining
from stagecut.executor.waves.setting.waits import UPDATE
from stagecut.executor.waves.setting.wave_pace import WavePace
from stagecut.executor.waves.team import WaveTeam
from stagecut.planner.core.waves import LocalStep
from tests.executor.waves.wave_plans import MSE, check_close, layers, plan_of, samples, worker_of

PATIENCE_S = 60
"""Only a hanging test waits that long."""


class Held(Channel):
    """Pushes from a wave on come later, and in between their sender goes on."""

    def __init__(self, inner, *, wave):
        self._inner, self._first, self._held, self._lock = inner, wave, [], threading.Lock()
        self.ask, self.answer = inner.ask, inner.answer

    def push(self, wave, vector):
        with self._lock:
            if self._held is None or wave < self._first:
                self._inner.push(wave, vector)
            else:
                self._held.append((wave, vector))

    def release(self):
        with self._lock:
            for wave, vector in self._held:
                self._inner.push(wave, vector)
            self._held = None


class Noted(Channel):
    """Tells when a wave has been pushed."""

    def __init__(self, inner, *, wave, pushed):
        self._inner, self._wave, self._pushed = inner, wave, pushed
        self.ask, self.answer = inner.ask, inner.answer

    def push(self, wave, vector):
        self._inner.push(wave, vector)
        if wave == self._wave:
            self._pushed.set()


def test_one_step_a_wave_is_made_when_all_servers_have_the_wave():
    """D = 1 and H = 1; the other worker's wave 1 reaches one server, and the second one only behind the gate of wave 2,
    which asks for clock 1. So the first worker has two waves of half its weights and one of the others. It steps once:
    a learning-rate schedule and the simulator count steps of all weights together.
    """
    owns, reached, seen = {}, threading.Event(), {}

    def channel(role, part, inner):
        if role.worker == 1:
            late = part.owner == "host1"
            owns[part.owner] = Held(inner, wave=1) if late else Noted(inner, wave=1, pushed=reached)
        return owns[part.owner] if role.worker == 1 else inner

    def data(worker, minibatch):
        if worker == 0 and minibatch == 2:  # the pull for the gate of wave 2 follows its push
            assert reached.wait(PATIENCE_S)
        if worker == 0 and minibatch == 4:
            seen.update({name: int(states[weight]["step"]) for name, weight in weights.items()})
            owns["host1"].release()
        return samples(2, seed=10 * worker + minibatch)

    plan = plan_of(*(worker_of(name, (0, 4)) for name in "ab"), local_step=LocalStep.WAVE, clock_distance=1)
    training = WaveTraining(loss_fn=MSE, optimizer=partial(torch.optim.Adam, lr=0.1))
    team = WaveTeam(plan, layers(), training, channel=channel)
    first = team.workers[0]
    states, weights = first.optimizer.state, first.weights.master
    team.train(data, num_waves=6)
    assert set(seen.values()) == {1}
    assert len({int(states[weight]["step"]) for weight in weights.values()}) == 1
    assert [part.clock - len(part.gradients) for part in first.exchange.parts] == [first.exchange.clock] * 2


def test_a_stage_without_weights_passes_each_gate_once():
    """Two calls of `train` clip as often as one, and the stage in the middle, which has no gradient, takes part."""
    first, _, *others = layers()
    plan = plan_of(worker_of("a", (0, 1, 2, 4)), local_step=LocalStep.WAVE)
    training = WaveTraining(loss_fn=MSE, optimizer=partial(torch.optim.SGD, lr=0.1), clip_norm=0.1)

    def trained(*calls):
        team = WaveTeam(plan, [first, torch.nn.Tanh(), *others], training)
        for num_waves in calls:
            team.train(lambda _, minibatch: samples(2, seed=minibatch), num_waves=num_waves)
        return team.global_weights()

    check_close(trained(2, 1), trained(3), tolerance=0.0)


class Watched(WavePace):
    """Tells of the first step of an optimizer."""

    def __init__(self, stepped):
        self._stepped = stepped

    def finish(self, kind, count=1):
        if kind == UPDATE and count:
            self._stepped.set()


def test_a_stage_steps_before_the_next_wave_arrives():
    """The first stage has no samples for wave 1 until the middle one has stepped with the gradients of wave 0."""
    stepped = threading.Event()

    def data(_worker, minibatch):
        assert minibatch == 1 or stepped.wait(PATIENCE_S)
        return samples(2)

    plan = plan_of(worker_of("a", (0, 1, 2, 4)), local_step=LocalStep.WAVE)
    pace = {1: Watched(stepped)}
    training = WaveTraining(loss_fn=MSE)
    team = WaveTeam(plan, layers(), training, pace=lambda role: pace.get(role.stages[0], WavePace()))
    assert [report.clock for report in team.train(data, num_waves=2)] == [2, 2, 2]
