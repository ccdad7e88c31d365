"""Best known plans hold today, and only ever improve."""

import json
from dataclasses import replace

import pytest

from benchmarks.harness.best_known import FOLDER, improve, read_entries, replay
from benchmarks.harness.measuring import measured_here
from benchmarks.problems.registry import QUALITY, SMOKE
from stagecut.planner.analysis.recheck import recheck
from stagecut.planner.io.files.plan_file import read_plan_file
from stagecut.planner.solvers.search.options import SolveOptions

(SPEC,) = SMOKE
SPECS = {spec.name: spec for spec in QUALITY}


@pytest.fixture(scope="module")
def found():
    """An even split, a greedy plan, and the best plan with its bound."""
    return {solver: measured_here(SPEC, solver, SolveOptions()) for solver in ("even", "greedy", "milp")}


@pytest.mark.parametrize("name", read_entries())
def test_a_best_known_plan_takes_the_time_it_is_filed_with(name):
    """Legal, made for the inputs of today, and not below its bound."""
    assert replay(SPECS[name], read_entries()[name]) == ()


@pytest.mark.parametrize("name", read_entries())
def test_a_best_known_plan_passes_plan_check(name):
    """Every number of its file."""
    entry = read_entries()[name]
    checked = recheck(read_plan_file(FOLDER / entry.plan))
    assert checked.faults == ()
    assert checked.differences == ()


def test_every_plan_file_belongs_to_an_entry():
    """None is left over."""
    assert {path.name for path in FOLDER.glob("*.plan.json")} == {entry.plan for entry in read_entries().values()}


def test_the_first_plan_of_an_instance_is_filed_and_holds(found, tmp_path):
    """The entry names the solver and has no bound."""
    assert improve(SPEC, {"even": found["even"]}, folder=tmp_path)
    entry = read_entries(folder=tmp_path)[SPEC.name]
    assert (entry.solver, entry.bound_s, entry.gap) == ("even", None, None)
    assert replay(SPEC, entry, folder=tmp_path) == ()


def test_a_better_bound_is_added_to_a_plan_that_stays(found, tmp_path):
    """The bound of milp, also where the plan is from elsewhere; a worse one changes nothing."""
    improve(SPEC, {"milp": found["milp"]}, folder=tmp_path)
    before = read_entries(folder=tmp_path)[SPEC.name]
    worse = replace(found["milp"], answer=replace(found["milp"].answer, bound_s=before.bound_s / 2))
    assert not improve(SPEC, {"milp": worse, "even": found["even"]}, folder=tmp_path)
    assert read_entries(folder=tmp_path)[SPEC.name] == before


def test_a_worse_plan_leaves_the_entry_as_it_is(found, tmp_path):
    """Written or not: the even split after the best plan."""
    improve(SPEC, {"milp": found["milp"]}, folder=tmp_path)
    text = (tmp_path / "best_known.json").read_text()
    assert not improve(SPEC, {"even": found["even"]}, folder=tmp_path)
    assert (tmp_path / "best_known.json").read_text() == text


def test_a_bound_above_the_plan_is_left_out(found, tmp_path):
    """Such a bound is wrong, whichever solver claims it."""
    answer = replace(found["milp"].answer, bound_s=2 * found["milp"].answer.objective_s)
    improve(SPEC, {"milp": replace(found["milp"], answer=answer)}, folder=tmp_path)
    assert read_entries(folder=tmp_path)[SPEC.name].bound_s is None


def test_an_entry_of_other_costs_is_replaced_as_a_whole(found, tmp_path):
    """A time that its plan does not take today: even a slower plan is better than a wrong one."""
    improve(SPEC, {"milp": found["milp"]}, folder=tmp_path)
    path = tmp_path / "best_known.json"
    trees = json.loads(path.read_text())
    trees[SPEC.name]["objective_s"] /= 2
    path.write_text(json.dumps(trees))
    assert "takes" in replay(SPEC, read_entries(folder=tmp_path)[SPEC.name], folder=tmp_path)[0]
    assert improve(SPEC, {"even": found["even"]}, folder=tmp_path)
    assert replay(SPEC, read_entries(folder=tmp_path)[SPEC.name], folder=tmp_path) == ()
