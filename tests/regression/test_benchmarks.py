"""The benchmark drivers run, what they print agrees with what they measured, and pages with what was kept."""

import itertools
import json
from dataclasses import replace

import pytest

from benchmarks import contributions, formulations, other_planners, quality, scaling, second_job, solver_steps, speed
from benchmarks.__main__ import DRIVERS
from benchmarks.harness import comparison
from benchmarks.harness.best_known import read_entries
from benchmarks.harness.driver import Driver, Request, parts_under
from benchmarks.harness.measuring import (
    GAP_MARKS,
    Answer,
    Measured,
    answer_of,
    answer_to,
    answers_of,
    measured,
    measured_here,
)
from benchmarks.papers import driver as papers
from benchmarks.papers import startup
from benchmarks.papers.autopipe_h import balance_table, side_by_side
from benchmarks.problems.generated_clusters import pods
from benchmarks.problems.registry import BALANCE, BALANCE_OF_BLOCKS, SCALING, SETS, SMOKE
from benchmarks.problems.specs import COMPARED
from benchmarks.report import pages, results
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.result import HistoryPoint, Result, Status
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.arrangement import PlacedStage, assemble
from stagecut.planner.solvers.registry import SOLVERS, run
from stagecut.planner.solvers.search.options import SolveOptions

(SPEC,) = SMOKE
HERE = Request(by=measured_here, quick=True)
ALL_SPECS = {spec.name: spec for specs in (*SETS.values(), *(paper.specs for paper in papers.PAPERS)) for spec in specs}
NOT_FOR_ANY_SIZE = {"brute-force", "textbook-milp", "textbook-milp-cbc"}
EQUAL_TO_GREEDY = {"umpipe"}
"""Without unequal micro-batches, which no instance allows."""


@pytest.fixture(scope="module")
def qualities():
    return answers_of(quality.measure(SPEC, HERE))


@pytest.fixture(scope="module")
def speeds():
    return {name: job(HERE) for name, job in speed.DRIVER.quick_jobs.items()}


def test_every_solver_for_problems_of_any_size_is_compared():
    """Every such solver is compared with all others on all instances."""
    assert set(COMPARED) == set(SOLVERS) - NOT_FOR_ANY_SIZE - EQUAL_TO_GREEDY


def test_the_smoke_spec_is_measured_by_every_solver(qualities):
    """No solver beats the bound that milp proves, and milp's plan is the best."""
    assert tuple(qualities) == COMPARED
    times_s = [answer.objective_s for answer in qualities.values() if answer.objective_s is not None]
    assert qualities["milp"].objective_s == min(times_s)
    assert qualities["milp"].bound_s <= min(times_s) * (1 + 1e-9)
    assert comparison.never_worse(qualities)


def test_answers_without_a_plan_have_a_reason(qualities):
    """A refusal says what cannot be expressed."""
    without = [answer for answer in qualities.values() if answer.objective_s is None]
    assert all(answer.reason or answer.status == Status.NO_PLAN for answer in without)


def test_the_quality_table_has_the_best_solver_at_one(qualities):
    """Columns: instance, solvers in order, best time, verdict."""
    cells = _cells(quality.wide_table({SPEC.name: qualities}), row=0)
    assert cells[0] == SPEC.name
    assert cells[1 + COMPARED.index("milp")] == "1.0000"
    assert cells[-1] == "yes"


def test_a_milp_plan_that_another_solver_beats_is_complained_of():
    """Times of 2 s and 1 s."""
    part = {"milp": _answer(2.0).tree(), "even": _answer(1.0).tree()}
    assert comparison.complaint({"instance": part}) == "milp is worse than another solver: instance"
    assert comparison.complaint({"instance": {**part, "milp": _answer(1.0).tree()}}) == ""


def test_a_bound_above_the_time_of_a_plan_is_complained_of():
    """A bound of 1.1 s where a plan takes 1 s."""
    part = {"milp": replace(_answer(1.0), bound_s=1.1).tree()}
    assert "a bound is above the time of a plan: instance" in comparison.complaint({"instance": part})


def test_a_best_known_bound_above_the_time_of_a_plan_is_complained_of():
    """A plan that takes half of what is filed as proven."""
    name, entry = next(iter(read_entries().items()))
    part = {"milp": _answer(entry.bound_s / 2).tree()}
    assert f"a bound is above the time of a plan: {name}" in comparison.complaint({name: part})


def test_the_best_published_planner_is_named():
    """The README shows it beside ours: 1.5 s over 1 s."""
    answers = {"milp": _answer(1.0), "dapple": _answer(1.5), "piper": _answer(2.0)}
    assert "1.5000 (dapple)" in quality.readme_table({SPEC.name: answers})


def test_answers_come_back_from_json(qualities):
    """Every field of them."""
    for answer in qualities.values():
        assert answer_of(json.loads(json.dumps(answer.tree()))) == answer


def test_steps_and_sizes_of_the_smoke_spec_come_from_its_counts(speeds):
    """A network that is built has arcs, and arc fixing leaves no more."""
    found = solver_steps.tables(speeds)
    sizes = {row.split("|")[1].strip(): row.split("|")[2].strip() for row in reversed(found["sizes"].splitlines())}
    built, fixed = (
        int(sizes.get(name, "0").replace(",", "")) for name in ("stages on device groups", "after arc fixing")
    )
    assert 0 <= fixed <= built
    assert built > 0
    assert "0" not in sizes.values()
    assert _cells(found["seconds"], row=0)[0] == "fluid bounds"
    assert _cells(second_job.tables(speeds)["jobs"], row=0)[-1] == "yes"


def test_the_smoke_spec_has_the_same_optimum_with_labels_or_mips_and_fewer_rows(speeds):
    """Each search ends by itself, and the default is in both tables."""
    parts = {**parts_under(speeds, contributions.WAYS), **parts_under(speeds, contributions.FAMILIES)}
    answers = [answer for part in parts.values() for answer in answers_of(part).values()]
    assert {answer.status for answer in answers} == {Status.OPTIMAL}
    assert len({answer.objective_s for answer in answers}) == 1
    assert [len(_cells(table, row=0)) for table in contributions.tables(speeds).values()] == [5, 5]


def test_formulations_agree_on_the_smoke_spec(speeds):
    """The least rows of all solvers that ran; and of `dp` and `milp`."""
    found = formulations.tables(speeds)
    assert _cells(found["optima"], row=0)[2] == "yes"
    assert _cells(found["dp"], row=0)[1] == "yes"


def test_a_race_is_left_out_where_the_textbook_formulation_proves_the_plan_optimal(speeds):
    """Nothing is left to prove to the same gap: a row for each engine with a gap."""
    runs = speeds[f"race: {SPEC.name}"]
    assert len(formulations.tables(speeds)["race"].splitlines()) == 2 + len(runs)


def test_other_planners_stand_beside_the_seconds_of_milp(speeds):
    """The seconds are of the same run: the ratio of milp to itself is 1."""
    rows = other_planners.tables(speeds)["planner seconds"].splitlines()
    assert next(row for row in rows if "`milp`" in row).endswith("1.0x |")


def test_quick_runs_print_tables_and_keep_nothing(capsys, tmp_path):
    """A quick run of the simulator needs no process of its own."""
    speed.DRIVER.main(["--quick", "--only", "simulator"], results=tmp_path)
    assert "4 stages, 8 micro-batches" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_solver_that_does_not_exist_is_refused(capsys):
    """Before anything runs."""
    with pytest.raises(SystemExit, match="2"):
        quality.DRIVER.main(["--solvers", "milp,mlip"])
    assert "unknown mlip" in capsys.readouterr().err


def test_the_exponent_of_a_power_law_is_its_power():
    """3 n^1.5 at n = 2, 4, 8, 16; two points are not enough."""
    sizes = [2, 4, 8, 16]
    assert scaling.exponent(sizes, [3 * n**1.5 for n in sizes]) == pytest.approx(1.5)
    assert scaling.exponent(sizes[:2], [1, 2]) is None


def test_scaling_runs_on_small_sizes():
    """The table has a row per size, with both solvers."""
    parts = {name: job(HERE) for name, job in scaling.DRIVER.quick_jobs.items()}
    table = scaling.tables(parts)[pages.BENCHMARKS_PAGE]["scaling"]
    assert [_cells(table, row=row)[0] for row in (0, 1)] == ["4 layers", "6 layers"]
    assert scaling.DRIVER.pictures(parts).keys() == {"scaling"}


def test_searches_that_a_limit_ended_do_not_count_for_the_exponent():
    """`milp` at 8 layers proved nothing in time."""
    points = {4: {"milp": _answer(1.0)}, 8: {"milp": replace(_answer(1.0), status="feasible")}}
    assert scaling.finished(points, "milp") == [(4, 1.0)]


def test_a_paper_shows_its_figure_beside_ours():
    """PipeDream's plan takes 3 s, DAPPLE's 2 s: 1.5 times."""
    answers = {"pipedream": _answer(3.0), "dapple": _answer(2.0), "milp": _answer(1.0)}
    parts = {f"dapple: {name}": _trees(answers) for name in ("a", "b")}
    text = papers.tables(parts)[pages.BENCHMARKS_PAGE]["paper dapple"]
    assert "3.23x" in text
    assert "1.50x to 1.50x" in text


def test_papers_run_on_the_smoke_spec():
    """Every solver of the paper has a time, on two devices that are alike."""
    parts = {name: job(HERE) for name, job in papers.DRIVER.quick_jobs.items()}
    text = papers.tables(parts)[pages.BENCHMARKS_PAGE]["paper dapple"]
    assert "vgg16, cpu-2" in text
    assert "over `dapple`: -" not in text


def test_start_up_with_halves_at_no_cost_is_shorter():
    """The last stage waits for half of the first micro-batch in place of all; an action costs 0.4 ms otherwise."""
    found = startup.measure(BALANCE[0], HERE)
    whole_s, half_s = found["startup_s"][:2]
    assert found["free_startup_s"] < whole_s
    assert half_s > found["free_startup_s"]
    row = _cells(startup.table({BALANCE[0].name: found}), row=0)
    assert row[0] == "gpt2-345m, pods:1:4"


def test_balance_is_shown_with_the_number_of_stages():
    """Two stages of 1 s and 3 s: mean 2 s, deviation 1 s, 3 / 2."""
    answer = replace(_answer(4.0), num_stages=2, stage_deviation_s=1.0, max_over_mean=1.5)
    assert "1 s, 1.500 (2)" in balance_table({"a": {"milp": answer}})


def test_planners_of_blocks_stand_beside_those_of_parts():
    """Two specs that differ in nothing else make one row."""
    found = {"a, r 1": {"dapple": _answer(1.0)}, "a, r 1, whole blocks": {"dapple": _answer(2.0)}}
    (answers,) = side_by_side(found).values()
    assert {name: answer.objective_s for name, answer in answers.items()} == {"dapple": 1.0, "dapple of blocks": 2.0}


def test_whole_blocks_take_as_long_as_their_parts():
    """24 blocks between embedding and head; the cut after the first two blocks is after the first four parts."""
    blocks, parts = BALANCE_OF_BLOCKS[0].problem(), BALANCE[0].problem()
    assert blocks.model.num_layers == 26
    assert blocks.model.num_params == parts.model.num_params
    times_s = []
    for problem, cut in ((blocks, 3), (parts, 5)):
        costs, device = CostModel(problem), Placement(server_class=0, island=0)
        layout = tuple(
            PlacedStage(stop=stop, placement=device, opens=stop == cut) for stop in (cut, problem.model.num_layers)
        )
        plan = assemble(costs, problem.variants[0], layout)
        numbers = costs.plan(plan)
        times_s.append([*numbers.forward_s, *numbers.backward_s, *numbers.transfer_s, *numbers.saved_bytes])
    assert times_s[0] == pytest.approx(times_s[1], rel=1e-12)


def test_the_balance_of_an_answer_is_that_of_its_plan():
    """Four stages, which an even number of layers leaves uneven."""
    even = measured_here(BALANCE[0], "even", SolveOptions()).answer
    assert even.num_stages == 4
    assert even.stage_deviation_s > 0
    assert 1 < even.max_over_mean < 4


def test_a_process_of_its_own_gives_the_same_answer(qualities):
    """The answer includes the peak memory: the interpreter alone takes more than a megabyte."""
    found = measured(SPEC, "even", SolveOptions())
    assert found.answer.objective_s == qualities["even"].objective_s
    assert found.answer.peak_bytes > 1e6
    assert found.plan is not None


def test_a_process_that_ends_without_an_answer_is_told():
    """A solver of that name makes it end with an error."""
    assert measured(SPEC, "no-such-solver", SolveOptions()).answer.status == "died"


def test_a_solver_that_cannot_express_the_problem_says_why():
    """`brute-force` refuses sixteen layers."""
    answer = measured_here(SPEC, "brute-force", SolveOptions()).answer
    assert answer.status == "refused"
    assert "16" in answer.reason


def test_seconds_to_a_gap_are_those_of_the_first_point_within_it():
    """Gaps 0.5, 0.1 and 0.05 after 1, 2 and 3 s."""
    history = tuple(
        HistoryPoint(seconds=seconds, objective_s=1.0, bound_s=bound)
        for seconds, bound in ((1, 0.5), (2, 0.9), (3, 0.95))
    )
    result = Result(status=Status.FEASIBLE, solver="milp", seconds=4.0, history=history, objective_s=1.0, bound_s=0.95)
    answer = answer_to(result)
    assert answer.seconds_to(0.1) == 2
    assert answer.seconds_to(0.01) is None
    assert answer.seconds_to_own_gap == 3


def test_parts_are_kept_as_they_come_and_measured_again_by_name(tmp_path, capsys):
    """Parts are JSON of any shape; `--only` keeps the other parts, `--from-results` measures nothing."""
    given = iter(range(10))
    jobs = {name: lambda _: {"value": next(given)} for name in ("one", "two")}
    page = tmp_path / "page.md"
    driver = Driver(name="some", jobs=jobs, quick_jobs={}, tables=lambda parts: {page: {"values": json.dumps(parts)}})
    for arguments in ([], ["--only", "two"], ["--from-results"]):
        driver.main(arguments, results=tmp_path)
    assert results.read_kept("some", jobs, folder=tmp_path) == {"one": {"value": 0}, "two": {"value": 2}}
    page.write_text("<!-- values: begin -->\n<!-- values: end -->\n")
    driver.main(["--docs", "--from-results"], results=tmp_path)
    assert pages.table_in(page.read_text(), "values") == json.dumps({"one": {"value": 0}, "two": {"value": 2}})
    capsys.readouterr()


def test_solvers_are_renewed_in_the_parts_that_have_them(tmp_path, capsys):
    """Their answers, and nothing else; a part without them is not measured."""
    given = itertools.count()
    names = {"one": ("even", "piper"), "two": ("even",)}
    jobs = {
        part: lambda request, of=of: {name: next(given) for name in of if request.wants(name)}
        for part, of in names.items()
    }
    driver = Driver(name="some", jobs=jobs, quick_jobs={}, tables=lambda _: {})
    for arguments in ([], ["--renew", "piper,dapple"]):
        driver.main(arguments, results=tmp_path)
    assert results.read_kept("some", jobs, folder=tmp_path) == {"one": {"even": 0, "piper": 3}, "two": {"even": 2}}
    with pytest.raises(SystemExit, match="2"):
        driver.main(["--renew", "piper", "--quick"], results=tmp_path)
    capsys.readouterr()


@pytest.mark.parametrize("arguments", [("--quick",), ("--solvers", "even"), ("--time-scale", "0.1")])
def test_pages_are_written_from_whole_measurements_only(arguments, tmp_path, capsys):
    """Wrong usage, before anything is measured."""
    driver = Driver(name="some", jobs={}, quick_jobs={}, tables=lambda _: {})
    with pytest.raises(SystemExit, match="2"):
        driver.main(["--docs", *arguments], results=tmp_path)
    assert "--docs: pages show all solvers" in capsys.readouterr().err


@pytest.mark.parametrize("request_", [Request(by=measured_here, solvers=("even",)), HERE])
def test_a_run_that_keeps_nothing_files_no_plan(request_, monkeypatch):
    """No plan is filed, even if it is the best one known."""
    filed = []
    monkeypatch.setattr(quality, "improve", lambda *_: filed.append(1))
    quality.measure(SPEC, request_)
    quality.measure(SPEC, Request(by=lambda *_: Measured(answer=Answer(status="feasible"))))
    assert len(filed) == 1


def test_a_complaint_is_an_exit_code(tmp_path, capsys):
    """After everything has been kept."""
    driver = Driver(
        name="some", jobs={"one": lambda _: {}}, quick_jobs={}, tables=lambda _: {}, complaint=lambda _: "too slow"
    )
    with pytest.raises(SystemExit, match="1"):
        driver.main([], results=tmp_path)
    assert "too slow" in capsys.readouterr().err
    assert list(results.read_kept("some", ["one"], folder=tmp_path)) == ["one"]


def test_parts_are_kept_beside_those_of_the_same_stamp(tmp_path):
    """Parts are kept in the expected order; a part that is no longer expected is dropped."""
    stamp = results.Stamp.here()
    for name in ("gone", "second", "first"):
        kept = results.Kept(stamp=stamp, parts={name: {"of": name}})
        results.keep_part("some", name, kept, expected=("first", "second", name), folder=tmp_path)
    assert list(results.read_kept("some", ("first", "second"), folder=tmp_path)) == ["first", "second"]
    assert "gone" not in (tmp_path / "some.json").read_text()


def test_parts_of_another_stamp_are_not_mixed_in(tmp_path):
    """A whole run replaces them, a part of a run is refused."""
    kept = results.Kept(stamp=results.Stamp.here(), parts={"one": {}})
    results.keep_part("some", "one", kept, expected=("one", "two"), folder=tmp_path)
    other = results.Stamp.here(time_scale=0.5)
    with pytest.raises(SystemExit, match="another machine"):
        results.check_stamp("some", other, folder=tmp_path)
    newer = results.Kept(stamp=other, parts={"two": {}})
    results.keep_part("some", "two", newer, expected=("one", "two"), folder=tmp_path)
    assert list(results.read_kept("some", ("one", "two"), folder=tmp_path)) == ["two"]


def test_the_table_goes_between_its_markers():
    """The rest of the page stays as it is, and a second run replaces the first."""
    page = "before\n<!-- sizes: begin -->\nold\n<!-- sizes: end -->\nafter\n"
    once = pages.with_table(page, "sizes", "new")
    assert once == "before\n<!-- sizes: begin -->\nnew\n<!-- sizes: end -->\nafter\n"
    assert pages.with_table(once, "sizes", "new") == once
    assert pages.table_in(once, "sizes") == "new"


def test_a_page_without_the_markers_is_refused():
    """Rather than written in part."""
    with pytest.raises(ValueError, match="<!-- sizes: begin -->"):
        pages.with_table("nothing", "sizes", "new")


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_pages_show_what_was_kept(driver):
    """`python -m benchmarks --docs --from-results` would change nothing."""
    kept = results.read_kept(driver.name, driver.jobs)
    for page, tables in driver.tables(kept).items():
        text = page.read_text(encoding="utf-8")
        for name, table in tables.items():
            assert pages.table_in(text, name) == table.strip("\n"), f"{page.name}: {name}"


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_pictures_of_what_was_kept_are_there(driver):
    """Drawn, and filed under the names that the page uses; nothing is left of formulas that were not typeset."""
    text = pages.BENCHMARKS_PAGE.read_text(encoding="utf-8")
    for name in driver.pictures(results.read_kept(driver.name, driver.jobs)):
        assert f"(images/{name}.svg)" in text
        assert "$" not in (pages.IMAGES / f"{name}.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("specs", SETS.values(), ids=list(SETS))
def test_specs_of_a_set_have_names_of_their_own(specs):
    """Results are filed under them; and the gaps they want are among those whose seconds are kept."""
    assert len({spec.name for spec in specs}) == len(specs)
    assert {spec.wanted_gap for spec in specs} <= set(GAP_MARKS)


@pytest.mark.parametrize("paper", papers.PAPERS, ids=lambda paper: paper.key)
def test_papers_compare_solvers_that_exist(paper):
    """Each of its specs is a problem."""
    for spec in paper.specs:
        assert set(spec.solvers) <= set(SOLVERS)
        assert spec.problem().variants


@pytest.mark.parametrize("spec", ALL_SPECS.values(), ids=ALL_SPECS)
def test_specs_are_problems_with_a_plan(spec):
    """An even split is found for each; its time is above zero, and what it did is counted."""
    result = run(spec.problem(), "even", SolveOptions())
    assert result.objective_s > 0
    assert dict(result.counts)["plans simulated"] > 0


@pytest.mark.parametrize(("types", "devices"), [(1, 4), (2, 4), (3, 24), (4, 24), (6, 24), (2, 1024)])
def test_generated_clusters_have_the_size_asked_for(types, devices):
    """There are servers of every type: 24 devices of 4 types are 6 servers, 2 + 2 + 1 + 1."""
    cluster = pods(f"pods:{types}:{devices}")
    assert cluster.num_devices == devices
    assert len(cluster.servers) == types
    if (types, devices) == (4, 24):
        assert [server.count for server in cluster.servers] == [2, 2, 1, 1]


def test_a_generated_cluster_of_too_many_types_is_refused():
    """Six are known."""
    with pytest.raises(BadInputError, match="from 1 to 6"):
        pods("pods:7:64")


def test_scaling_goes_as_far_as_it_says():
    """Layers 24 to 384, devices 4 to 1024, types 1 to 6."""
    ends = {what: (min(specs), max(specs)) for what, specs in SCALING.items()}
    assert ends == {"layers": (24, 384), "devices": (4, 1024), "types": (1, 6)}


def _answer(seconds):
    return Answer(status="optimal", objective_s=seconds, bound_s=None, search_s=seconds, seconds=seconds)


def _trees(answers):
    return {solver: answer.tree() for solver, answer in answers.items()}


def _cells(table, *, row):
    """Cells of a row below the head."""
    return [cell.strip() for cell in table.splitlines()[2 + row].strip("|").split("|")]
