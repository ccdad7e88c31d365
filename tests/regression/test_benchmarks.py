"""The benchmark drivers run, and what they print agrees with what they measured."""

from benchmarks.quality import BEGIN, END, SOLVERS, markdown, measure, with_table
from benchmarks.specs import QUALITY, SMOKE


def test_the_smoke_spec_is_measured_by_every_solver():
    """No solver beats the bound that milp proves, and milp beats none of them by being worse."""
    (spec,) = SMOKE
    results = measure(spec)
    assert tuple(results) == SOLVERS
    times_s = {solver: result.objective_s for solver, result in results.items()}
    assert times_s["milp"] == min(times_s.values())
    assert results["milp"].bound_s <= times_s["milp"] * (1 + 1e-9)
    best_row = markdown(SMOKE, {spec.name: results}).splitlines()[2]
    assert best_row.split("|")[6].strip() == "1.0000"


def test_the_table_goes_between_its_markers():
    """The rest of the page stays as it is, and a second run replaces the first."""
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = with_table(page, "new")
    assert once == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert with_table(once, "new") == once


def test_specs_have_names_of_their_own():
    """Results are filed under them."""
    names = [spec.name for spec in QUALITY]
    assert len(set(names)) == len(names)
