"""The sweep over shares of setups runs, and docs/sublots.md shows what was kept."""

import re
from pathlib import Path

import pytest

from benchmarks import sublots
from benchmarks.harness.driver import Request
from benchmarks.report import pages, results

ROOT = Path(__file__).parents[2]
KEPT = results.read_kept(sublots.DRIVER.name, sublots.DRIVER.jobs)


def test_every_part_was_kept_and_solved_to_the_optimum():
    assert list(KEPT) == list(sublots.DRIVER.jobs)
    assert sublots.complaint(KEPT) == ""


def test_unequal_sizes_are_never_slower_and_coupling_never_helps():
    for of_kind in sublots.points(KEPT).values():
        for point in of_kind:
            assert sublots.gain(point) >= -1e-9
            assert point["apart_s"] <= point["coupled_s"] * (1 + 1e-9)


def test_the_page_shows_what_was_kept():
    """`python -m benchmarks.sublots --docs --from-results` would change nothing in it."""
    ((page, tables),) = sublots.tables(KEPT).items()
    assert pages.table_in(page.read_text(encoding="utf-8"), "gains") == tables["gains"]
    assert (pages.IMAGES / "sublots.svg").is_file()


def test_the_first_pipelines_kept_are_drawn_again():
    """The first kind and worth, by their makespans."""
    name, job = next(iter(sublots.DRIVER.jobs.items()))
    found, kept = job(Request())["pipelines"], KEPT[name]["pipelines"]
    for before, now in zip(kept, found, strict=True):
        assert now == pytest.approx(before, rel=1e-9)


def test_a_pipeline_whose_sizes_are_not_proven_is_complained_of():
    point = {"share": 0.1, "equal_s": 3.0, "coupled_s": 2.0, "bound_s": 1.0, "apart_s": 2.0}
    assert sublots.complaint({"alike, 1": {"pipelines": [point]}}).startswith("1 of 1 pipelines")


def test_tests_named_on_the_page_exist():
    page = sublots.PAGE.read_text(encoding="utf-8")
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "property").glob("test_sublot*.py"))
    names = set(re.findall(r"`(test_\w+)`", page))
    assert len(names) > 10
    assert {name for name in names if f"def {name}(" not in tests} == set()
