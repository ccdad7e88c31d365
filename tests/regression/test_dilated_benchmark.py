"""The dilated benchmark: its plans, and what it says of them."""

import json

import pytest

from benchmarks.dilated import driver as dilated
from benchmarks.dilated.plans import all_plans
from benchmarks.report import pages
from stagecut.executor.schedule.checker import check_lists
from stagecut.planner.core.schedule import Schedule


@pytest.fixture(scope="module")
def cases():
    return all_plans()


def line(case, error, *, difference=0.0, contaminated=False):
    """A table line for a plan, as if it had been measured."""
    return dilated.PlanResult(
        case=case,
        measured_s=case.simulated_s * (1 + error),
        start_up_s=case.start_up_s * (1 + error),
        run_queue_share=0.01,
        contaminated=contaminated,
        gradient_difference=difference,
        overrun_s=0.0,
    )


def test_the_plans_are_many_and_of_every_kind(cases):
    """There are at least twelve plans, of all schedules, with up to eight stages and sixteen devices."""
    assert len({case.name for case in cases}) == len(cases) >= 12
    assert {case.plan.schedule for case in cases} == set(Schedule)
    assert max(case.times.num_stages for case in cases) == 8
    assert max(case.num_devices for case in cases) == 16
    assert any(stage.replicas > 1 for case in cases for stage in case.plan.stages)
    assert any(len(case.plan.pipelines) > 1 for case in cases)
    assert any(case.times.own_s for case in cases)


def test_the_plans_can_be_played_and_are_long_enough_to_measure(cases):
    """An iteration takes seconds, an action at least ten milliseconds."""
    for case in cases:
        check_lists(case.lists, case.plan)
        assert 1.0 < case.simulated_s < 4.0, case.name
        actions = (action for own in case.lists for action in own)
        assert min(case.times.action_s(a.op, a.stage, a.hi - a.lo) for a in actions) >= 0.01, case.name


def test_limits_hold_for_every_plan_and_for_the_median(cases):
    """5 % each and 2.5 % in the median, either sign; and gradients that are right."""
    first, second, third = cases[:3]
    assert dilated.passed([line(first, 0.049), line(second, -0.02), line(third, 0.01)])
    assert not dilated.passed([line(first, 0.051), line(second, 0.0), line(third, 0.0)])
    assert not dilated.passed([line(first, 0.03), line(second, -0.03), line(third, 0.0)])
    assert not dilated.passed([line(first, 0.0, difference=1e-6), line(second, 0.0), line(third, 0.0)])


def test_the_table_says_what_was_measured(cases):
    """1 % slower than simulated, and contaminated."""
    lines = [line(cases[0], 0.01, contaminated=True)]
    cells = [cell.strip() for cell in dilated.table(lines).splitlines()[2].strip("|").split("|")]
    assert cells[0] == cases[0].name
    assert cells[-3:] == ["+1.00 %", "1.00 % (contaminated)", "pass"]
    assert "1 of 1 plans" in dilated.verdict(lines)


def test_start_up_is_halved_in_the_simulator(cases):
    """Three forwards of 50 ms before the last of four stages, seven of 24 ms before the last of eight; half of each."""
    table = dilated.start_up_table([line(case, 0.0) for case in cases])
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]
    simulated = [row[1:] for row in rows if row[0].endswith("simulated")]
    assert simulated == [["150 ms", "75 ms", "0.500"], ["168 ms", "84 ms", "0.500"]]


def test_what_is_kept_is_json(cases):
    kept = json.loads(json.dumps(dilated.record([line(cases[0], 0.01)])))
    assert kept["plans"][0]["error"] == pytest.approx(0.01)


def test_the_page_has_a_place_for_the_table():
    assert pages.with_table(dilated.DILATED_PAGE.read_text(encoding="utf-8"), "dilated", "new")
