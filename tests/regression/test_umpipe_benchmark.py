"""The driver of UMPIPE's searches, and what it measured."""

import numpy as np
import pytest

from benchmarks.harness.driver import Request
from benchmarks.papers.umpipe import DRIVER, FLUSHES, QUICK, faults, jobs, measure, tables
from benchmarks.problems.flush_lines import ModelFlush
from benchmarks.report import pages, results
from stagecut.planner.solvers.papers.umpipe.search import METHODS, search
from stagecut.planner.sublots.labels import SublotProblem, solve_sublots
from stagecut.planner.sublots.process_chain import ProcessChain, affine

KEPT = results.read_kept("umpipe", DRIVER.jobs)


@pytest.fixture(scope="module")
def smoke():
    return measure(QUICK[0], Request(quick=True))


def test_every_search_is_measured_on_the_smoke_problem(smoke):
    """And none is below the bound, which is the optimum."""
    assert set(smoke) == {"exact", "1f1b", *METHODS}
    assert faults(smoke) == []


def test_searches_below_the_bound_and_open_gaps_are_complained_of(smoke):
    """A second less than possible, a bound a second too low, and other sizes."""
    exact, matrix = smoke["exact"], smoke["matrix-genetic"]
    below = {**matrix, "makespan_s": exact["bound_s"] - 1}
    assert faults({**smoke, "matrix-genetic": below}) == ["matrix-genetic is below the bound"]
    assert faults({**smoke, "exact": {**exact, "bound_s": exact["bound_s"] - 1}}) == ["the optimum is not proven"]
    assert faults({**smoke, "matrix-genetic": {**matrix, "sizes": []}}) == ["DGAP and TiDGAP differ"]


def test_all_problems_were_measured_without_complaint():
    """Optima proven, no search below the bound, DGAP and TiDGAP alike."""
    assert list(KEPT) == [each.name for each in FLUSHES] == list(jobs(FLUSHES))
    assert DRIVER.complaint(KEPT) == ""


def test_the_distance_of_dgap_is_what_was_measured():
    """At most 1 % over the optimum on each problem, and no worse than equal sizes."""
    for part in KEPT.values():
        assert part["dual-genetic"]["makespan_s"] <= 1.01 * part["exact"]["makespan_s"]
        assert part["dual-genetic"]["makespan_s"] <= part["equal-sizes"]["makespan_s"] * (1 + 1e-12)


@pytest.mark.parametrize(
    ("kind", "sizes", "count", "within"),
    [(1, tuple(range(1, 65)), 3, 0.024), (2, (1, 2, 4, 8, 16, 32, 64), 10, 1e-9)],
    ids=["all sizes", "powers of two"],
)
def test_random_lines_are_within_the_distance_that_the_page_states(kind, sizes, count, within):
    """15 processes, 64 samples; the page has the figures of ten lines each."""
    for index in range(count):
        random = np.random.default_rng([kind, index])
        times = [(random.uniform(0, 6), random.uniform(0.1, 2)) for _ in range(15)]
        line = ProcessChain(processes=tuple(affine(f"p{i}", *each, 64, sizes) for i, each in enumerate(times)))
        problem = SublotProblem.apart(line)
        exact, found = solve_sublots(problem), search(problem, "matrix-genetic")
        assert exact.bound_s <= found.makespan_s <= exact.makespan_s * (1 + within)


def test_the_page_shows_what_was_kept():
    for page, made in tables(KEPT).items():
        text = page.read_text(encoding="utf-8")
        for name, table in made.items():
            assert pages.table_in(text, name) == table


OCCURRING = [1, 2, 4]
"""Samples of the sublots that four samples are cut into."""


def test_lines_of_a_model_have_the_times_of_its_stages_and_messages():
    """VGG16 on two cores of one host: a line of stage, message, stage; more samples never take less."""
    forward, backward = ModelFlush(model="vgg16", cluster="cpu-2", num_samples=4, sizes=(1, 2, 4)).lines()
    for line in (forward, backward):
        assert len(line.processes) == 3
        assert all(np.all(np.diff(process.seconds[OCCURRING]) >= 0) for process in line.processes)
    assert np.array_equal(forward.processes[1].seconds[OCCURRING], backward.processes[1].seconds[OCCURRING])
    # A backward takes two forwards and one launch less, of 20 us a layer.
    assert np.all(backward.processes[2].seconds[OCCURRING] < 2 * forward.processes[0].seconds[OCCURRING])
