"""Histories of runs: every line whole, whatever happened to the one before."""

import json
import multiprocessing
import os
from dataclasses import replace

import pytest

from stagecut.planner.core.messages.errors import BadInputError, OutputError
from stagecut.planner.io.files import run_history
from stagecut.planner.io.files.run_history import append_run, check_appendable, read_runs
from stagecut.planner.io.files.wave_run_file import append_wave_run
from tests.runs import DILATED, RUN, WAVE_RUN, WAVE_RUN_WITHOUT_ONE


def test_runs_come_back_in_order(tmp_path):
    path = tmp_path / "runs.jsonl"
    for run in (RUN, DILATED, RUN):
        append_run(path, run)
    history = read_runs(path)
    assert history.runs == (RUN, DILATED, RUN)
    assert history.skipped == ()
    assert len(path.read_text().splitlines()) == 3


def test_runs_through_waves_are_kept_apart(tmp_path):
    path = tmp_path / "runs.jsonl"
    append_wave_run(path, WAVE_RUN)
    append_run(path, RUN)
    append_wave_run(path, WAVE_RUN_WITHOUT_ONE)
    history = read_runs(path)
    assert history.runs == (RUN,)
    assert history.wave_runs == (WAVE_RUN, WAVE_RUN_WITHOUT_ONE)
    assert history.skipped == ()


def test_a_half_written_last_line_is_reported_and_passed_over(tmp_path):
    path = tmp_path / "runs.jsonl"
    append_run(path, RUN)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:100])
    history = read_runs(path)
    assert history.runs == (RUN,)
    assert history.skipped == (f"{path}:2: not a run in JSON; it is incomplete; line skipped",)


def test_the_next_run_starts_a_line_of_its_own_behind_a_half_written_one(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text('{"schema":1,"pl')
    append_run(path, DILATED)
    history = read_runs(path)
    assert history.runs == (DILATED,)
    assert len(history.skipped) == 1


def test_a_line_of_another_kind_is_passed_over_with_the_reason(tmp_path):
    path = tmp_path / "runs.jsonl"
    append_run(path, RUN)
    tree = json.loads(path.read_text())
    tree["stages"][0]["replicas"] = 0
    path.write_text(json.dumps(tree) + "\n\n" + path.read_text())
    history = read_runs(path)
    assert history.runs == (RUN,)
    (fault,) = history.skipped
    assert fault.startswith(f"{path}:1: stages[0].replicas: ")
    assert "got 0" in fault


def test_a_run_that_contradicts_itself_is_passed_over(tmp_path):
    """More steps of warm-up than steps."""
    path = tmp_path / "runs.jsonl"
    append_run(path, RUN)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"warmup": 9}) + "\n" + path.read_text())
    assert read_runs(path).runs == (RUN,)


def test_a_file_without_any_run_is_bad_input(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("bread\nbutter\n")
    with pytest.raises(BadInputError, match="contains no run"):
        read_runs(path)


def test_an_empty_history_has_no_runs(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.touch()
    assert read_runs(path).runs == ()


def test_a_missing_history_is_bad_input(tmp_path):
    with pytest.raises(BadInputError, match="no such file"):
        read_runs(tmp_path / "runs.jsonl")


def test_places_that_cannot_be_appended_to_are_refused(tmp_path):
    for path, words in ((tmp_path, "is a folder"), (tmp_path / "none" / "runs.jsonl", "the folder")):
        with pytest.raises(OutputError, match=words):
            check_appendable(path)
        with pytest.raises(OutputError, match=words):
            append_run(path, RUN)


def test_a_line_that_the_disk_takes_only_in_part_is_taken_back(tmp_path, monkeypatch):
    path = tmp_path / "runs.jsonl"
    append_run(path, RUN)
    before = path.read_bytes()
    write = os.write
    monkeypatch.setattr(run_history.os, "write", lambda descriptor, content: write(descriptor, content[:50]))
    with pytest.raises(OutputError, match="this run is not recorded"):
        append_run(path, RUN)
    assert path.read_bytes() == before


def _append_often(path, number):
    for _ in range(20):
        append_run(path, replace(RUN, device=f"writer {number}"))


def test_writers_at_the_same_time_do_not_disturb_each_other(tmp_path):
    """Three processes, 20 runs each."""
    path = tmp_path / "runs.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_often, args=(path, number)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    history = read_runs(path)
    assert history.skipped == ()
    assert sorted(run.device for run in history.runs) == sorted(
        f"writer {number}" for number in range(3) for _ in range(20)
    )
