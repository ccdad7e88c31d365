"""Training in the simulated order, and what docs/waves.md shows of it."""

import random
import time
from dataclasses import replace
from fractions import Fraction

import pytest
import torch

from benchmarks.convergence import clocks, driver, methods, pictures, regret, tables, tasks, training
from benchmarks.convergence.replay import ServerOrder
from benchmarks.report import pages, results
from stagecut.executor.waves.setting.data import sharded
from stagecut.planner.core.job import WaveChoices
from stagecut.planner.core.waves import Allocation
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.simulator.waves.network import WaveKind
from stagecut.planner.simulator.waves.play import WaveSpan
from stagecut.planner.simulator.waves.timeline import simulate_waves

KEPT = results.read_kept(driver.DRIVER.name, driver.DRIVER.jobs)
NUM_WAVES = 12


def replayed_run(distance, draw=None):
    """The servers' weights, and what each worker's minibatches lost, of linear workers on one device each."""
    problem = regret.WORK.problem(global_batch=regret.WORK.minibatch, waves=WaveChoices(clock_distance=distance))
    timed = regret.plan_of(2, distance)
    timeline = simulate_waves(WaveCostModel(problem).plan(timed), num_waves=NUM_WAVES)
    plan = training.scaled(timed, Fraction(1, 4))
    recipe = training.Recipe(task=tasks.regression(), optimizer=training.sgd(0.02), scale=Fraction(1, 4), num_samples=0)
    team, kept = training.replayed(timeline, plan, recipe, [1, NUM_WAVES])
    data = sharded(recipe.task.training, plan)

    def slow(worker, minibatch):
        if draw is not None:
            time.sleep(draw.choice((0, 0, 1e-3)))
        return data(worker, minibatch)

    reports = team.train(slow, num_waves=NUM_WAVES)
    return team, kept, reports, timeline


@pytest.mark.parametrize("distance", [0, 4])
def test_speeds_of_threads_change_no_digit(distance):
    _, kept, reports, timeline = replayed_run(distance)
    for seed in (1, 2):
        _, again, others, _ = replayed_run(distance, random.Random(seed))
        assert [report.losses for report in others] == [report.losses for report in reports]
        assert [report.global_staleness for report in others] == [report.global_staleness for report in reports]
        for wave, snapshot in kept.items():
            assert snapshot.time_s == again[wave].time_s
            assert all(torch.equal(value, again[wave].weights[name]) for name, value in snapshot.weights.items())
    assert kept[NUM_WAVES].time_s == max(span.end_s for span in timeline.spans if span.kind is WaveKind.PUSH)


@pytest.mark.parametrize("distance", [0, 4])
def test_minibatches_lack_what_the_simulated_ones_lack(distance):
    """H = 2: minibatch p, whose forward has clock c in the simulation, may lack p - 1 - 2 c."""
    _, _, reports, timeline = replayed_run(distance)
    forwards = [span for span in timeline.spans if span.kind is WaveKind.FORWARD]
    for report in reports:
        rule = timeline.costs.plan.rule_of(timeline.costs.plan.workers[report.worker])
        # The runtime merges into minibatch p + N_m at step p; the clock of a version is that of its gate at least.
        own = [span for span in forwards if span.worker == report.worker]
        seen = max(rule.num_missing(span.number, span.clock, other=2) for span in own)
        assert report.global_staleness == seen


def test_a_pull_comes_behind_the_push_that_gives_its_clock_and_before_what_it_allows():
    """Two workers, D = 0: each pull of clock 1 needs both first pushes, and its worker's next push needs the pull."""
    push, pull = WaveKind.PUSH, WaveKind.PULL
    spans = [
        WaveSpan(push, 0, 0, 0, 0.0, 1.0),
        WaveSpan(push, 1, 0, 0, 2.0, 3.0),
        WaveSpan(pull, 0, 0, 1, 9.0, 9.5, clock=1),  # granted at 3, but the link was busy until 9
        WaveSpan(pull, 1, 0, 1, 3.0, 4.0, clock=1),
        WaveSpan(push, 1, 0, 1, 5.0, 6.0),
        WaveSpan(push, 0, 0, 1, 10.0, 11.0),
    ]
    done = []
    order = ServerOrder("host", spans, lambda owner, time_s: done.append(time_s))
    for event in [(push, (1, 0), 1), (pull, (1, 0), 1), (push, (1, 0), 0), (pull, (0, 0), 1), (push, (0, 0), 0)]:
        order.put(event, lambda event=event: done.append(event))
    assert done == [
        *((push, (0, 0), 0), 1.0, (push, (1, 0), 0), 3.0),
        *((pull, (0, 0), 1), (pull, (1, 0), 1), (push, (1, 0), 1), 6.0),
    ]


def test_time_to_target_lies_between_evaluations():
    """Means of up to three values: 0, 25, 50, 80; 60 is a third of the way from 50 to 80."""
    found = training.time_to((1, 2, 3, 6), (0, 50, 100, 90), 60, rising=True)
    assert found == pytest.approx(3 + 3 / 3)
    assert training.time_to((1, 2), (0, 50), 60, rising=True) is None


def test_data_parallelism_has_the_devices_that_hold_the_model():
    """As in the paper: ResNet-152 with minibatch 32 fits on all but the RTX 2060."""
    plan = clocks.data_parallel(methods.DIGITS.work).plan
    assert clocks.kinds_of(plan) == ["R", "R", "V", "V", "Q", "Q"]
    # Without the P4000s, 4 x 32 in a bit over 0.30 s rather than 6 x 32 in 0.66 s.
    assert clocks.kinds_of(clocks.data_parallel(methods.DIGITS.work, fastest=True).plan) == ["R", "R", "V", "V"]


def test_runs_of_layers_have_all_of_the_model():
    whole = clocks.build_model("resnet152")
    runs = clocks.in_runs(whole, 8)
    assert runs.num_layers == 8
    assert runs.num_params == pytest.approx(whole.num_params)
    largest = max(layer.forward_flops for layer in runs.layers)
    assert largest < 1.5 / 8 * sum(layer.forward_flops for layer in whole.layers)


def test_a_training_through_pipelines_learns_within_its_bounds():
    comparison = replace(methods.DIGITS, num_samples=960, wave_rates=(0.0125,), seeds=(0,))
    choices = WaveChoices(allocation=Allocation.HYBRID, clock_distance=4)
    found = methods.measure(comparison, lambda: clocks.virtual_workers(comparison.work, choices))
    assert found["curve"]["values"][-1] > 2 * found["curve"]["values"][0]
    assert driver.complaint({"one": found}) == ""


def test_the_convex_case_runs():
    found = regret.measure(4, 32, minibatches=320)
    assert found["counts"][-1] == 256
    assert found["global_staleness"][0] <= found["global_staleness"][1]
    assert found["regrets"][-1] < found["regrets"][0]


def test_every_part_was_kept_and_kept_its_bound():
    assert list(KEPT) == list(driver.DRIVER.jobs)
    assert driver.complaint(KEPT) == ""


def test_older_weights_than_allowed_are_complained_of():
    part = {"local_staleness": [1, 1], "global_staleness": [3, 2]}
    assert driver.complaint({"one": part}) == "weights are older than the bound: one"


def test_the_page_shows_what_was_kept():
    """`python -m benchmarks.convergence --docs --from-results` would change nothing in it."""
    ((page, expected),) = tables.tables(KEPT).items()
    text = page.read_text(encoding="utf-8")
    for name, table in expected.items():
        assert pages.table_in(text, name) == table
    for name in pictures.pictures(KEPT):
        assert (pages.IMAGES / f"{name}.svg").is_file()
