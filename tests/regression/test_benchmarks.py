"""The benchmark drivers run, and what they print agrees with what they measured."""

import json

import pytest

from benchmarks import formulations, pages, quality, solver_steps
from benchmarks.measuring import answer_record, measured, measured_here, seconds_to_gap
from benchmarks.specs import DP, QUALITY, SMOKE, STEPS, TEXTBOOK, TEXTBOOK_RACE
from planner.core.result import HistoryPoint, Result, Status
from planner.solvers.options import SolveOptions

(SPEC,) = SMOKE


@pytest.fixture(scope="module")
def qualities():
    return quality.measure(SPEC, measured_here)


def test_the_smoke_spec_is_measured_by_every_solver(qualities):
    """No solver beats the bound that milp proves, and milp's plan is the best."""
    assert tuple(qualities) == quality.SOLVERS
    times_s = {solver: answer.result.objective_s for solver, answer in qualities.items()}
    assert times_s["milp"] == min(times_s.values())
    assert qualities["milp"].result.bound_s <= times_s["milp"] * (1 + 1e-9)


def test_the_quality_table_has_the_best_solver_at_one(qualities):
    """The smoke spec has two devices, and milp is the last of four solvers."""
    cells = _cells(quality.table(SMOKE, {SPEC.name: qualities}), row=0)
    assert cells[:2] == [SPEC.name, "2"]
    assert cells[5] == "1.0000"


def test_what_is_kept_of_a_run_is_json(qualities):
    """With every solver's time and bound."""
    kept = json.loads(json.dumps(quality.record({SPEC.name: qualities})))
    assert kept[SPEC.name]["milp"]["objective_s"] == qualities["milp"].result.objective_s
    assert set(kept[SPEC.name]) == set(quality.SOLVERS)


def test_steps_and_sizes_of_the_smoke_spec_come_from_its_counts():
    """A network that is built has arcs, and the sieve leaves no more."""
    answers = solver_steps.measure(SMOKE, measured_here)
    sizes = solver_steps.sizes_table(SMOKE, answers)
    built, sieved = (int(_cells(sizes, row=row)[1].replace(",", "")) for row in (1, 2))
    assert 0 <= sieved <= built
    assert built > 0
    assert _cells(solver_steps.threads_table(SMOKE, answers), row=0)[-1] == "yes"
    assert _cells(solver_steps.seconds_table(SMOKE, answers), row=0)[0] == "greedy"


def test_formulations_agree_on_the_smoke_spec():
    """The least rows of all solvers that ran."""
    answers = formulations.shared_optima(SPEC, measured_here)
    assert _cells(formulations.optima_table({SPEC.name: answers}), row=0)[2] == "yes"


def test_dp_and_milp_agree_on_the_smoke_spec():
    """On the rows that they share."""
    answers = formulations.dp_and_milp(SPEC, measured_here)
    assert _cells(formulations.dp_table({SPEC.name: answers}), row=0)[1] == "yes"


def test_a_race_is_left_out_where_the_textbook_formulation_proves_the_plan_optimal():
    """Nothing is left to prove to the same gap: a table of its head only."""
    runs = [run for run in formulations.race(SPEC, measured_here) if run[1].result.gap]
    assert len(formulations.race_table({SPEC.name: runs}).splitlines()) == 2 + len(runs)


def test_a_process_of_its_own_gives_the_same_answer(qualities):
    """And tells how much memory it held: the interpreter alone is more than a megabyte."""
    answer = measured(SPEC, "even", SolveOptions())
    assert answer.result.objective_s == qualities["even"].result.objective_s
    assert answer.peak_bytes > 1e6


def test_a_solver_that_cannot_express_the_problem_has_no_answer():
    """`brute-force` refuses sixteen layers."""
    assert measured_here(SPEC, "brute-force", SolveOptions()) is None
    assert answer_record(None) is None


def test_seconds_to_a_gap_are_those_of_the_first_point_within_it():
    """Gaps 0.5, 0.1 and 0.05 after 1, 2 and 3 s."""
    history = tuple(
        HistoryPoint(seconds=seconds, objective_s=1.0, bound_s=bound)
        for seconds, bound in ((1, 0.5), (2, 0.9), (3, 0.95))
    )
    result = Result(status=Status.FEASIBLE, solver="milp", seconds=4.0, history=history)
    assert seconds_to_gap(result, 0.1) == 2
    assert seconds_to_gap(result, 0.01) is None


def test_the_table_goes_between_its_markers():
    """The rest of the page stays as it is, and a second run replaces the first."""
    page = "before\n<!-- sizes: begin -->\nold\n<!-- sizes: end -->\nafter\n"
    once = pages.with_table(page, "sizes", "new")
    assert once == "before\n<!-- sizes: begin -->\nnew\n<!-- sizes: end -->\nafter\n"
    assert pages.with_table(once, "sizes", "new") == once


def test_a_page_without_the_markers_is_refused():
    """Rather than written in part."""
    with pytest.raises(ValueError, match="<!-- sizes: begin -->"):
        pages.with_table("nothing", "sizes", "new")


def test_pages_have_places_for_all_tables():
    """Of the README and of the page about the solver."""
    assert pages.with_table(pages.README.read_text(), "quality table", "new")
    text = pages.SOLVER_PAGE.read_text()
    for name in ("sizes", "seconds", "threads", "optima", "race", "dp"):
        assert pages.with_table(text, name, "new")


@pytest.mark.parametrize("specs", [QUALITY, STEPS, TEXTBOOK, TEXTBOOK_RACE, DP, SMOKE])
def test_specs_have_names_of_their_own(specs):
    """Results are filed under them."""
    names = [spec.name for spec in specs]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("spec", (*QUALITY, *DP, *TEXTBOOK, *TEXTBOOK_RACE), ids=lambda spec: spec.name)
def test_specs_are_problems(spec):
    """Of the catalogue."""
    assert spec.problem().variants


def _cells(table, *, row):
    """Of a line below the head."""
    return [cell.strip() for cell in table.splitlines()[2 + row].strip("|").split("|")]
