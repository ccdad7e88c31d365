"""No minibatch computes with older weights than the plan allows, and the bounds are reached."""

import random
import threading
import time
from functools import partial

import pytest
import torch
from torch import nn

from stagecut.executor.waves.setting.execution import WaveTraining
from stagecut.executor.waves.setting.schemes import DILOCO, LOCAL_SGD, SSP, WSP
from stagecut.executor.waves.setting.staleness import StalenessCheck, StalenessError
from stagecut.executor.waves.team import WaveTeam
from stagecut.planner.core.waves import LocalStep, WaveRule
from tests.executor.waves.wave_plans import plan_of, worker_of

PATIENCE_S = 60
"""Only a hanging test waits that long."""
UNIT = partial(torch.optim.SGD, lr=1.0)
FAST, SLOW = 0, 1


class Tally(nn.Module):
    """Weights that count: after p minibatches of worker w they hold p in place w.

    The state is the worker in one-hot code and passes unchanged. With minus its sum for the loss, the gradient of the
    weights is minus the code, so a step of length 1 adds one in the worker's place.
    """

    def __init__(self, num_workers, seen=None):
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(num_workers, dtype=torch.float64))
        self.seen = seen

    def forward(self, state):
        if self.seen is not None:
            self.seen(int(state[0].argmax()), self.counts.detach().clone())
        return state + state.detach() * (self.counts - self.counts.detach())


def minus_sum(output, targets):
    return -output.sum() / len(output)


def one_hot(worker, num_workers):
    code = torch.zeros(1, num_workers, dtype=torch.float64)
    code[0, worker] = 1.0
    return code


BOUNDS = {
    **{(1, 0): 0, (1, 1): 1, (1, 4): 4},
    **{(2, 0): 2, (2, 1): 4, (2, 4): 10},
    **{(4, 0): 6, (4, 1): 10, (4, 4): 22},
    **{(6, 0): 10, (6, 1): 16, (6, 4): 34},
}
"""(D + 2) N_m - 2 by N_m and D, at least D N_m."""


@pytest.mark.parametrize(("in_flight", "distance"), BOUNDS)
@pytest.mark.parametrize("served", [True, False])
def test_the_bound_is_reached_and_not_exceeded(in_flight, distance, served):
    """The slow worker does not begin until the fast one has forwarded the last minibatch before gate D + 1.

    That is minibatch (D + 2) H - 1, and lacks all (D + 2) H - 2 of the slow worker's minibatches before it.
    """
    stalest = (distance + 2) * in_flight - 1
    released = threading.Event()
    missing, forwarded = {}, {FAST: 0, SLOW: 0}

    def seen(worker, counts):
        forwarded[worker] += 1
        missing[worker, forwarded[worker]] = forwarded[worker] - 1 - int(counts[1 - worker])
        if worker == FAST and forwarded[worker] == stalest:
            released.set()

    def data(worker, minibatch):
        if worker == SLOW and minibatch == 1:
            assert released.wait(PATIENCE_S)
        return one_hot(worker, 2), torch.zeros(1)

    plan = plan_of(
        worker_of("fast", (0, 1), minibatch=1, in_flight=in_flight),
        worker_of("slow", (0, 1), minibatch=1, in_flight=in_flight),
        served=served,
        clock_distance=distance,
    )
    team = WaveTeam(plan, [lambda: Tally(2, seen)], WaveTraining(loss_fn=minus_sum, optimizer=UNIT))
    reports = team.train(data, num_waves=distance + 4)
    bound = BOUNDS[in_flight, distance]
    assert missing[FAST, stalest] == bound
    assert max(missing.values()) == bound
    assert reports[FAST].global_staleness == reports[FAST].global_bound == bound
    assert all(report.local_staleness == report.local_bound == in_flight - 1 for report in reports)
    assert all(report.clock <= distance + 4 for report in reports)


def random_plan(draw):
    """Two or three unlike workers with minibatches of one sample, and waves that may be longer or shorter than N_m."""
    distance = draw.randint(0, 2)

    def worker(index):
        cuts = (0, *sorted(draw.sample((1, 2), draw.randint(0, 2))), 3)
        wave = draw.randint(1, 4)
        # with more than one stage the first one forwards up to N_m, 3 or 5 minibatches before its first backward
        most = 5 if len(cuts) == 2 else wave
        return worker_of(f"worker{index}", cuts, minibatch=1, in_flight=min(draw.randint(1, 5), most), wave=wave)

    workers = [worker(index) for index in range(draw.randint(2, 3))]
    return plan_of(*workers, served=draw.random() < 0.6, clock_distance=distance)


def run_at_random_speed(draw, plan, scheme=None):
    """Train three waves with forwards of up to a millisecond; what each layer saw, by worker."""
    speeds = [draw.choice((0.0, 0.0, 1e-4, 1e-3)) for _ in plan.workers]
    num_workers, record = len(plan.workers), {}

    def layer(index):
        def seen(worker, counts):
            record.setdefault((worker, index), []).append(counts)
            time.sleep(speeds[worker] * draw.random())

        return lambda: Tally(num_workers, seen)

    training = WaveTraining(loss_fn=minus_sum, optimizer=UNIT, scheme=scheme)
    team = WaveTeam(plan, [layer(index) for index in range(3)], training)
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(
            team.train(lambda worker, _: (one_hot(worker, num_workers), torch.zeros(1)), num_waves=3)
        ),
        daemon=True,
    )
    thread.start()
    thread.join(PATIENCE_S)
    assert answers, f"deadlock or fault: {plan}"
    return team, record


@pytest.mark.parametrize("seed", range(2))
def test_random_speeds_keep_the_bounds_and_never_wait_forever(seed):
    """60 plans: weights hold exactly 1 .. p - N_m of their own, and at least the waves of the last gate of others."""
    draw = random.Random(seed)
    for _ in range(60):
        plan = random_plan(draw)
        team, record = run_at_random_speed(draw, plan)
        for (worker, _), every in record.items():
            own = plan.workers[worker]
            rule = WSP.rule_of(plan, own)
            for minibatch, counts in enumerate(every, start=1):
                assert counts[worker] == max(0, minibatch - own.in_flight)
                for other, theirs in enumerate(plan.workers):
                    clock, part = divmod(int(counts[other]), theirs.wave)
                    assert other == worker or (part == 0 and clock >= rule.least_clock(minibatch))
        for counts in team.global_weights().values():
            assert counts.tolist() == [3 * worker.wave for worker in plan.workers]


@pytest.mark.parametrize("scheme", [SSP, LOCAL_SGD, DILOCO, None])
def test_other_schemes_never_wait_forever_either(scheme):
    """Ten plans each of two unlike workers; None: one step a wave, with D up to 2."""
    draw = random.Random(7)
    for _ in range(10):
        fixed, waits = scheme is SSP, scheme is not LOCAL_SGD
        wave = 1 if fixed else draw.randint(1, 3)
        in_flight = wave if scheme is None else 1
        cuts = [(0, 3), (0, 1, 3), (0, 1, 2, 3)]
        workers = [
            worker_of(name, draw.choice(cuts), minibatch=1, in_flight=in_flight, wave=wave) for name in ("a", "b")
        ]
        step = LocalStep.WAVE if scheme is None else LocalStep.MINIBATCH
        distance = draw.randint(0, 2) if waits else 0
        plan = plan_of(*workers, served=draw.random() < 0.5, clock_distance=distance, local_step=step)
        _, record = run_at_random_speed(draw, plan, scheme)
        assert all(len(every) == 3 * wave for every in record.values())


def test_weights_that_are_too_old_end_the_run():
    """N_m = H = 4, D = 1: minibatch 12 is the gate of wave 2 and needs clock 1; 12 - 4 own updates."""
    worker = worker_of("a", (0, 1), in_flight=4)
    rule = WaveRule(wave=4, clock_distance=1)
    check = StalenessCheck(WSP, rule, worker, (4,), label="rank 3 (a/0, worker 0, stage 0)")
    check.check(11, own_updates=7, clock=0)
    check.check(12, own_updates=8, clock=1)
    assert (check.most_own, check.most_missing) == (3, 10)
    too_old = r"worker 0, stage 0\): minibatch 12 of wave 2 .* 8 own updates .* clock 0 \(at least 1\), 11 minibatches"
    with pytest.raises(StalenessError, match=too_old):
        check.check(12, own_updates=8, clock=0)
    with pytest.raises(StalenessError, match=r"7 own updates \(at least 8 allowed\)"):
        check.check(12, own_updates=7, clock=2)


def test_missing_minibatches_are_those_of_the_other_worker():
    """H = 2, D = 0, beside waves of 20: minibatch 3 lacks the 20 of wave 0, the gate behind it 10 of wave 1."""
    worker = worker_of("a", (0, 1), in_flight=2)
    check = StalenessCheck(WSP, WaveRule(wave=2, clock_distance=0), worker, (2, 20), label="rank 0")
    check.check(4, own_updates=2, clock=1)
    assert (check.most_missing, check.most_allowed) == (10, 20)
    check.check(3, own_updates=1, clock=0)
    assert check.most_missing == 20


def test_a_carrier_that_gives_too_little_is_noticed():
    """A shard that answers at once, whatever it was asked for."""
    plan = plan_of(*(worker_of(name, (0, 1), minibatch=1) for name in "ab"))
    team = WaveTeam(plan, [lambda: Tally(2)], WaveTraining(loss_fn=minus_sum, optimizer=UNIT))
    shard = team.shards["host0"][0]
    ask, released = shard.ask, threading.Event()

    def hasty(member, *, have, least):
        answer = ask(member, have=have, least=0)
        released.set()
        return answer

    shard.ask = hasty

    def data(worker, minibatch):
        if worker == SLOW and minibatch == 1:
            assert released.wait(PATIENCE_S)
        return one_hot(worker, 2), torch.zeros(1)

    with pytest.raises(StalenessError, match=r"minibatch 2 of wave 1 .* clock 0"):
        team.train(data, num_waves=2)
