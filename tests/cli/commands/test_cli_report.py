"""`plan report` and `plan solve --report`."""

import json
from dataclasses import replace

import pytest

from stagecut.planner.io.documents.canonical import sha256_of
from stagecut.planner.io.files.plan_file import read_plan_file, to_tree
from stagecut.planner.io.files.run_history import append_run
from stagecut.planner.io.files.run_history import to_tree as run_tree
from stagecut.planner.io.files.wave_run_file import append_wave_run
from stagecut.planner.io.files.wave_run_file import to_tree as wave_run_tree
from tests.runs import RUN, WAVE_RUN
from tests.wave_files import SPREAD, tiny_plan, write_wave_file


@pytest.fixture
def page(tmp_path):
    return tmp_path / "report.html"


@pytest.fixture
def wave_file(tmp_path):
    """A plan of two virtual workers, without a bound."""
    return write_wave_file(tmp_path / "waves.json", tiny_plan(owners=SPREAD))


@pytest.fixture
def own_wave_run(wave_file):
    return replace(WAVE_RUN, plan_hash=sha256_of(json.loads(wave_file.read_text())))


@pytest.fixture
def own_run(plan_file):
    return replace(RUN, plan_hash=sha256_of(to_tree(read_plan_file(plan_file))))


def test_page_is_written_and_the_verdict_printed(plan, plan_file, page):
    done = plan("report", plan_file, "-o", page)
    assert done.exit_code == 0, done.stderr
    assert "faster than an even split" in done.stdout
    assert done.stderr == f"wrote {page}\n"
    assert done.stdout.strip() in page.read_text()
    assert page.stat().st_size < 3_000_000


def test_file_is_not_overwritten_unless_forced(plan, plan_file, page):
    page.write_text("mine")
    assert plan("report", plan_file, "-o", page).exit_code == 3
    assert page.read_text() == "mine"
    assert plan("report", plan_file, "-o", page, "--force").exit_code == 0


def test_answers_of_other_commands_get_sections(plan, plan_json, plan_file, tiny, page, tmp_path):
    answers = {
        "solve": plan_json("solve", *tiny),
        "compare": plan_json("compare", *tiny, "--solvers", "dp,even"),
        "explain": plan_json("explain", plan_file, "--what-if", "memory"),
    }
    given = []
    for name, answer in answers.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(answer))
        given += [f"--{name}", tmp_path / f"{name}.json"]
    told = plan_json("report", plan_file, "-o", page, *given)
    text = page.read_text()
    assert told["bytes"] == page.stat().st_size
    assert told["verdict"] == answers["solve"]["verdict"]
    assert "10 % more memory" in text
    assert all(f'<section id="{name}"' in text for name in ("search", "solvers"))


def test_run_of_the_plan_is_taken_from_a_record_or_a_history(plan, plan_file, own_run, page, tmp_path):
    record, history = tmp_path / "run.json", tmp_path / "runs.jsonl"
    record.write_text(json.dumps(run_tree(own_run), indent=2))
    for run in (RUN, own_run):
        append_run(history, run)
    for path in (record, history):
        assert plan("report", plan_file, "-o", page, "--force", "--run", path).exit_code == 0
        assert '<section id="run"' in page.read_text()


def test_run_of_another_plan_is_refused(plan, plan_file, page, tmp_path):
    record = tmp_path / "run.json"
    record.write_text(json.dumps(run_tree(RUN)))
    done = plan("report", plan_file, "-o", page, "--run", record)
    assert done.exit_code == 3
    assert f"{record}: holds no run of this plan" in done.stderr
    assert "abababab" in done.stderr
    assert not page.exists()


def test_answer_about_another_problem_is_refused(plan, plan_json, plan_file, tiny, page, tmp_path):
    answer = tmp_path / "solve.json"
    answer.write_text(json.dumps(plan_json("solve", *tiny, "--global-batch", "16")))
    done = plan("report", plan_file, "-o", page, "--solve", answer)
    assert done.exit_code == 3
    assert "is about another problem than the plan: another job" in done.stderr


def test_answer_about_another_plan_is_refused(plan, plan_json, plan_file, tiny, page, tmp_path):
    answer = tmp_path / "solve.json"
    answer.write_text(json.dumps(plan_json("solve", *tiny, "--solver", "even")))
    done = plan("report", plan_file, "-o", page, "--solve", answer)
    assert done.exit_code == 3
    assert "is about another plan" in done.stderr


def test_answer_of_another_command_is_named(plan, plan_json, plan_file, tiny, page, tmp_path):
    answer = tmp_path / "compare.json"
    answer.write_text(json.dumps(plan_json("compare", *tiny, "--solvers", "even")))
    done = plan("report", plan_file, "-o", page, "--solve", answer)
    assert "expected a plan solve --json file, got a plan compare --json file" in done.stderr


@pytest.mark.parametrize("command", ["report", "solve"])
def test_only_html_is_written(plan, plan_file, tiny, tmp_path, command):
    arguments = (plan_file, "-o") if command == "report" else (*tiny, "--report")
    done = plan(command, *arguments, tmp_path / "report.pdf")
    assert done.exit_code == 3
    assert "a report must be a .html file, got suffix '.pdf'" in done.stderr


def test_solve_writes_a_report_with_the_course_of_its_search(plan, tiny, page):
    done = plan("solve", *tiny, "--report", page)
    assert done.exit_code == 0, done.stderr
    assert f"wrote {page}" in done.stderr
    assert '<section id="search"' in page.read_text()


def test_virtual_workers_have_a_report(plan, wave_file, page):
    done = plan("report", wave_file, "-o", page)
    assert done.exit_code == 0, done.stderr
    assert "samples/s, without a proof of how good that is" in done.stdout
    assert done.stdout.strip() in page.read_text()


def test_run_through_waves_is_taken_from_a_record_or_a_history(plan, wave_file, own_wave_run, page, tmp_path):
    record, history = tmp_path / "run.json", tmp_path / "runs.jsonl"
    record.write_text(json.dumps(wave_run_tree(own_wave_run)))
    append_run(history, RUN)
    append_wave_run(history, own_wave_run)
    for path in (record, history):
        assert plan("report", wave_file, "-o", page, "--force", "--run", path).exit_code == 0
        assert '<section id="run"' in page.read_text()


@pytest.mark.parametrize("run", [run_tree(RUN), wave_run_tree(WAVE_RUN)], ids=["pipelines", "another plan"])
def test_run_of_another_plan_is_refused_for_virtual_workers(plan, wave_file, page, tmp_path, run):
    record = tmp_path / "run.json"
    record.write_text(json.dumps(run))
    done = plan("report", wave_file, "-o", page, "--run", record)
    assert done.exit_code == 3
    assert done.stderr.count("Error:") == 1
    assert f"{record}: holds no run of this plan" in done.stderr
    assert f"got runs of {run['plan_hash'][:8]}." in done.stderr
    assert not page.exists()


def test_run_through_waves_is_refused_for_pipelines(plan, plan_file, own_wave_run, page, tmp_path):
    record = tmp_path / "run.json"
    record.write_text(json.dumps(wave_run_tree(own_wave_run)))
    done = plan("report", plan_file, "-o", page, "--run", record)
    assert done.exit_code == 3
    assert f"{record}: holds no run of this plan" in done.stderr


def test_answer_about_pipelines_is_refused_for_virtual_workers(plan, plan_json, wave_file, tiny, page, tmp_path):
    answer = tmp_path / "solve.json"
    answer.write_text(json.dumps(plan_json("solve", *tiny)))
    done = plan("report", wave_file, "-o", page, "--solve", answer)
    assert done.exit_code == 3
    assert done.stderr == f"Error: {answer}: is about another problem than the plan: another job\n"


def test_solve_writes_a_report_of_virtual_workers(plan, plan_json, tiny_folder, page, tmp_path):
    """The answer of the same search, given to `plan report`, has the same sections."""
    files = ("--model", tiny_folder / "profile.yaml", "--cluster", tiny_folder / "cluster.yaml")
    arguments = (*files, "--synchronisation", "wsp", "--micro-batch", "4", "--workers", "2", "--time-limit", "10")
    path, answer = tmp_path / "plan.json", tmp_path / "solve.json"
    answer.write_text(json.dumps(plan_json("solve", *arguments, "-o", path, "--report", page)))
    assert '<section id="search"' in page.read_text()
    written = page.read_bytes()
    assert plan("report", path, "-o", page, "--force", "--solve", answer).exit_code == 0
    assert page.read_bytes() == written


def test_answer_about_other_virtual_workers_is_refused(plan, plan_json, wave_file, page, tmp_path):
    answer, explained = tmp_path / "explain.json", plan_json("explain", wave_file, "--what-if", "memory")
    answer.write_text(json.dumps(explained | {"samples_per_s": 2 * explained["samples_per_s"]}))
    done = plan("report", wave_file, "-o", page, "--explain", answer)
    assert done.exit_code == 3
    assert "is about another plan: one of" in done.stderr
