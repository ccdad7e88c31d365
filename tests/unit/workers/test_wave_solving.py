"""Answers known by hand, limits, and reasons why nothing fits."""

import threading
from dataclasses import replace

import pytest

from stagecut.planner.core.job import AUTO, Job, WaveChoices
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status, StopCause
from stagecut.planner.core.waves import Allocation, LocalStep
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.cost.waves.wave_legality import wave_faults
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.workers.solving import solve_waves
from tests.catalogue import NOTHING_KEPT, WEIGHTS_ONLY, chain, one_device_per_server
from tests.unit.workers.test_wave_policies import hetpipe_16, without


def small(cluster, model, *, optimizer=NOTHING_KEPT, batch=8, **choices):
    """A problem of minibatches of one sample."""
    job = Job(global_batch=batch, micro_batches=(1,), optimizer=optimizer, precision=model.precision)
    return Problem(model=model, cluster=cluster, job=replace(job, waves=WaveChoices(**choices)))


def fast_and_slow(**choices):
    """Four layers of 1 s on the fast device, of 3 s on the slow one; transfers cost nothing."""
    return small(one_device_per_server("fast", "slow"), chain(4, {"fast": 1.0, "slow": 3.0}), **choices)


def test_one_worker_of_both_devices_is_the_best():
    # Three layers on the fast device, one on the slow one: 3 s a minibatch on each. Alone the fast device takes 4 s,
    # and two workers wait for the slow one: 12 s for two.
    result = solve_waves(fast_and_slow(), SolveOptions())
    assert result.status is Status.OPTIMAL
    assert result.samples_per_s == pytest.approx(1 / 3)
    assert [worker.num_stages for worker in result.plan.workers] == [2]


def test_short_workers_of_a_case_with_several_numbers_in_flight_have_no_more_than_they_can_use():
    # One stage can use one minibatch in flight, two stages five. Only messages take time, so that one stage is best.
    cluster = one_device_per_server("fast", "fast")
    cluster = replace(cluster, network=replace(cluster.network, latency_s=0.5))
    problem = small(cluster, chain(2, {"fast": 0.0}))
    plan = solve_waves(problem, SolveOptions()).plan
    assert wave_faults(WaveCostModel(problem), plan, problem.job.waves) == ()


def test_waves_in_proportion_to_speed_make_rates_add_up():
    # 1/4 + 1/12 per second: as much as one worker of both devices, 1/3, without any transfer.
    result = solve_waves(fast_and_slow(proportional=True, num_workers=2), SolveOptions())
    assert result.status is Status.OPTIMAL
    assert result.samples_per_s == pytest.approx(1 / 3)
    assert [worker.wave for worker in result.plan.workers] in ([3, 1], [1, 3])


def test_workers_of_speeds_three_and_one_share_a_batch_of_eight_as_six_and_two():
    choices = {"proportional": True, "local_step": LocalStep.WAVE, "num_workers": 2}
    result = solve_waves(fast_and_slow(**choices), SolveOptions())
    # 6 x 4 s and 2 x 12 s.
    assert sorted(worker.wave for worker in result.plan.workers) == [2, 6]
    assert result.samples_per_s == pytest.approx(8 / 24)


def test_the_answer_is_no_worse_than_any_policy():
    def answer(allocation):
        return solve_waves(without(hetpipe_16(allocation=allocation), 1, 2), SolveOptions(gap=0.2))

    best = answer(Allocation.OPTIMAL).samples_per_s
    for policy in (Allocation.NODE_PARTITION, Allocation.EQUAL_DISTRIBUTION, Allocation.HYBRID):
        other = answer(policy)
        assert 0 < other.samples_per_s <= best
        assert other.samples_per_s <= other.bound_samples_per_s


def test_a_cancelled_search_says_so():
    cancelled = threading.Event()
    cancelled.set()
    result = solve_waves(fast_and_slow(), SolveOptions(), cancelled=cancelled)
    assert result.status is Status.INTERRUPTED
    assert result.stopped_by is StopCause.USER


def test_a_search_cancelled_at_its_first_plan_keeps_it():
    cancelled = threading.Event()

    def stop(point):
        if point.samples_per_s is not None:
            cancelled.set()

    result = solve_waves(hetpipe_16(), SolveOptions(), cancelled=cancelled, observer=stop)
    assert result.plan is not None
    assert result.stopped_by is StopCause.USER


def test_improvements_are_observed_and_kept():
    points = []
    result = solve_waves(fast_and_slow(), SolveOptions(), observer=points.append)
    assert result.history == tuple(points)
    assert points[-1].samples_per_s == result.samples_per_s
    assert points[-1].bound_samples_per_s == pytest.approx(result.bound_samples_per_s)


def test_more_workers_than_devices_are_infeasible():
    result = solve_waves(fast_and_slow(num_workers=3), SolveOptions())
    assert result.status is Status.INFEASIBLE
    assert result.reason == "3 virtual workers need a device each, and there are 2"


def test_a_layer_that_fits_nowhere_is_named():
    # Versions of 2 B: two minibatches in flight need 4 B, devices have 3 B.
    cluster = one_device_per_server("fast", "slow", memory_bytes=3.0)
    model = chain(2, {"fast": 1.0, "slow": 3.0}, params_bytes=4.0)
    result = solve_waves(small(cluster, model, optimizer=WEIGHTS_ONLY, in_flight=2), SolveOptions())
    assert result.status is Status.INFEASIBLE
    assert result.reason == "layer 'layer-0' needs 4 B with 2 in flight, and the largest device, fast, has 3 B"


def test_too_little_memory_of_all_devices_together_is_said_with_numbers():
    # Four layers of 1 B each for two workers, two devices of 3 B.
    cluster = one_device_per_server("fast", "slow", memory_bytes=3.0)
    model = chain(4, {"fast": 1.0, "slow": 3.0}, params_bytes=2.0)
    result = solve_waves(small(cluster, model, optimizer=WEIGHTS_ONLY, num_workers=2), SolveOptions())
    assert result.status is Status.INFEASIBLE
    expected = "weights and optimizer state of 2 virtual workers need 8 B with 1 in flight, and their devices have 6 B"
    assert result.reason == expected


def test_a_batch_that_workers_cannot_share_is_said():
    result = solve_waves(fast_and_slow(local_step=LocalStep.WAVE, num_workers=2, batch=7), SolveOptions())
    assert result.status is Status.INFEASIBLE
    assert result.reason == "2 virtual workers cannot share the 7 minibatches of 1 of a batch of 7 equally"


def test_shares_of_a_batch_leave_no_choice_of_minibatches_in_flight():
    with pytest.raises(BadInputError, match="in_flight"):
        solve_waves(fast_and_slow(proportional=True, local_step=LocalStep.WAVE, in_flight=2), SolveOptions())


def test_a_job_without_waves_is_refused():
    problem = fast_and_slow()
    with pytest.raises(BadInputError, match="waves"):
        solve_waves(replace(problem, job=replace(problem.job, waves=None)), SolveOptions())
    assert problem.job.waves.num_workers == AUTO
