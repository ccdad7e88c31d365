"""`plan report` and `plan solve --report`."""

import json
from dataclasses import replace

import pytest

from stagecut.planner.io.documents.canonical import sha256_of
from stagecut.planner.io.files.plan_file import read_plan_file, to_tree
from stagecut.planner.io.files.run_history import append_run
from stagecut.planner.io.files.run_history import to_tree as run_tree
from tests.runs import RUN


@pytest.fixture
def page(tmp_path):
    return tmp_path / "report.html"


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
