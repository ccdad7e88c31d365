"""`plan history`."""

from pathlib import Path

import pytest

from stagecut.planner.io.files.run_history import append_run
from tests.runs import CONTAMINATED, DILATED, RUN

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()


@pytest.fixture
def history(tmp_path):
    """A real run 25 % slower than predicted, the same contaminated, and a dilated one 1 % slower."""
    path = tmp_path / "runs.jsonl"
    for run in (RUN, CONTAMINATED, DILATED):
        append_run(path, run)
    return path


def test_every_run_is_a_row_and_every_mode_a_summary(plan, history):
    done = plan("history", history)
    assert done.exit_code == 0, done.output
    rows = [line for line in done.stdout.splitlines() if line.startswith("2026-01-31T12:00:00Z")]
    assert len(rows) == 3
    assert "abababab" in rows[0]
    assert "+25.00 %" in rows[0]
    assert [row.endswith("contaminated") for row in rows] == [False, True, False]
    assert "median error 25.00 %, worst 25.00 % over 1 uncontaminated run" in done.stdout
    assert "median error 1.00 %" in done.stdout


def test_file_of_the_current_folder_is_the_default(plan, history, monkeypatch):
    monkeypatch.chdir(history.parent)
    assert plan("history").stdout == plan("history", history).stdout


def test_json_has_the_runs_and_their_accuracy(plan_json, history):
    found = plan_json("history", history)
    assert [run["error"] for run in found["runs"]] == pytest.approx([0.25, 0.25, 0.01])
    assert [(row["mode"], row["count"]) for row in found["accuracy"]] == [("real", 1), ("dilated", 1)]
    section = PAGE.partition("\n## plan history\n")[2].partition("\n## ")[0]
    keys = {*found, *found["runs"][0], *found["accuracy"][0]}
    assert {key for key in keys if f"`{key}`" not in section} == set()


def test_half_written_lines_are_told_and_passed_over(plan, plan_json, history):
    history.write_bytes(history.read_bytes()[:-30])
    done = plan("history", history)
    assert done.exit_code == 0
    assert f"Warning: {history}:3: not a run in JSON; it is incomplete" in done.stderr
    assert len(plan_json("history", history)["runs"]) == 2


def test_an_empty_history_says_so(plan, tmp_path):
    path = tmp_path / "runs.jsonl"
    path.touch()
    assert "no runs yet" in plan("history", path).stdout


def test_a_missing_history_is_bad_input(plan, tmp_path):
    done = plan("history", tmp_path / "runs.jsonl")
    assert done.exit_code == 3
    assert "no such file; `plan run` creates one" in done.stderr
