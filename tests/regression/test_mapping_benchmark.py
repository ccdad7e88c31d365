"""The driver of AutoPipe-H's device mapping."""

from benchmarks.harness.driver import Request
from benchmarks.papers.autopipe_h_mapping import DRIVER, QUICK, SPECS, in_words, jobs, measure, table
from stagecut.planner.core.problem import Problem
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.catalogue import chain, job, one_server


def test_both_searches_are_measured_on_the_smoke_spec():
    """The blind search's own time is no longer than the simulated time of its plan."""
    (spec,) = QUICK
    part = measure(spec, Request(quick=True))
    assert part["blind"]["believed_s"] <= part["blind"]["objective_s"]
    assert part["aware"]["objective_s"] <= part["blind"]["objective_s"]
    times, mappings = table({spec.name: part}).split("\n\n")
    assert times.splitlines()[2].startswith("| vgg16, cpu-2 | ")
    assert "on cpu" in mappings.splitlines()[2]


def test_a_problem_without_a_plan_has_no_row():
    """The head of both tables is left."""
    found = table({"none, batch 1": {"blind": {"status": "no-plan-in-budget"}, "aware": {"status": "feasible"}}})
    assert [len(part.splitlines()) for part in found.split("\n\n")] == [2, 2]


def test_mappings_are_told_in_words():
    """Two stages of one device each on the only host."""
    problem = Problem(model=chain(2, {"gpu": 1.0}), cluster=one_server("gpu", 2), job=job(8))
    assert in_words(run(problem, "autopipe-h", SolveOptions()).plan) == "2x(r=1) on host"


def test_specs_are_problems_with_names_of_their_own():
    """All of 1F1B only, the schedule that AutoPipe-H knows."""
    assert len(jobs()) == len(SPECS)
    assert set(DRIVER.jobs) == set(jobs())
    assert all(spec.problem().variants for spec in SPECS)
