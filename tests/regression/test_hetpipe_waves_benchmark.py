"""What the driver of HetPipe's waves measured, and what it complains of."""

from benchmarks.papers.hetpipe_waves import BEST, DRIVER, complaint, tables
from benchmarks.report import pages, results

KEPT = results.read_kept("hetpipe_waves", DRIVER.jobs)


def test_the_optimum_is_never_worse_than_a_policy_and_is_proven():
    assert list(KEPT) == list(DRIVER.jobs)
    assert complaint(KEPT) == ""


def test_a_better_policy_and_a_wide_gap_are_complained_of():
    own = {name: {"samples_per_s": 99.0} for name in ("NP", "ED", "HD")}
    own[BEST] = {"samples_per_s": 98.0, "bound_samples_per_s": 100.0}
    assert complaint({"x": {"0": own}}).splitlines() == [
        *(f"x, 0: {name} is better" for name in ("NP", "ED", "HD")),
        "x, 0: gap 2.00 %",
    ]


def test_the_page_shows_what_was_measured():
    for page, own in tables(KEPT).items():
        text = page.read_text(encoding="utf-8")
        for name, table in own.items():
            assert pages.table_in(text, name) == table
