"""`plan calibrate`, on the tiny profile: a run whose stages took 1.2 times what was predicted."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stagecut.planner.core.cluster import DeviceType
from stagecut.planner.core.run_record import RunMode, StageFigures
from stagecut.planner.cost.layer_times import layer_times
from stagecut.planner.io.documents.canonical import sha256_of
from stagecut.planner.io.files.profile import read_profile, to_tree
from stagecut.planner.io.files.run_history import append_run
from tests.runs import CONTAMINATED, RUN, STAGE

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
SLOWER = 1.2


@pytest.fixture(scope="module")
def profile(tiny_folder):
    return tiny_folder / "profile.yaml"


@pytest.fixture(scope="module")
def run(profile):
    """Every layer a stage of its own on a V100."""
    model = read_profile(profile)
    device = DeviceType(name="V100", peak_flops_per_s=(), memory_bytes=1.0)
    times = zip(*(seconds.tolist() for seconds in layer_times(model, device, 2.0)), strict=True)
    stages = tuple(
        replace(
            STAGE,
            start=index,
            stop=index + 1,
            device_type="V100",
            predicted=StageFigures(forward_s=forward_s, backward_s=backward_s),
            measured=StageFigures(forward_s=SLOWER * forward_s, backward_s=SLOWER * backward_s),
        )
        for index, (forward_s, backward_s) in enumerate(times)
    )
    return replace(RUN, profile_hash=sha256_of(to_tree(model)), stages=stages)


@pytest.fixture
def history(tmp_path, run):
    """Two runs to calibrate with, and one each of another profile, in dilated mode, and contaminated."""
    path = tmp_path / "runs.jsonl"
    dirty = replace(run, steps=CONTAMINATED.steps, contaminated=True)
    for each in (run, run, RUN, replace(run, mode=RunMode.DILATED), dirty):
        append_run(path, each)
    return path


def test_corrected_profile_is_written(plan, profile, history, tmp_path):
    """All six layers are 1.2 times slower; the weight of 1 takes off a percent or two."""
    output = tmp_path / "calibrated.json"
    done = plan("calibrate", history, "--profile", profile, "-o", output)
    assert done.exit_code == 0, done.output
    assert f"wrote {output}" in done.stderr
    for before, after in zip(read_profile(profile).layers, read_profile(output).layers, strict=True):
        ratios = [b / a for a, b in zip(before.table("V100").forward_s, after.table("V100").forward_s, strict=True)]
        assert ratios == pytest.approx([SLOWER] * len(ratios), rel=0.02)
        assert after.table("T4") == before.table("T4")


def test_error_that_is_left_is_told(plan, plan_json, profile, history):
    done = plan("calibrate", history, "--profile", profile)
    assert "stage times before  median error 20.00 %, worst 20.00 %" in done.stdout
    found = plan_json("calibrate", history, "--profile", profile)
    assert found["before"]["median_error"] == pytest.approx(0.2)
    assert found["after"]["worst_error"] < 0.01
    assert found["num_runs"] == 2


def test_runs_that_say_nothing_are_passed_over_and_counted(plan, plan_json, profile, history):
    done = plan("calibrate", history, "--profile", profile)
    assert "1 made with other profiles; 1 in dilated mode, which says nothing about devices" in done.stderr
    assert "; 1 contaminated" in done.stderr
    found = plan_json("calibrate", history, "--profile", profile)
    assert found["passed_over"] == {"other_profile": 1, "dilated": 1, "contaminated": 1}


def test_contaminated_runs_are_taken_if_asked_for(plan_json, profile, history):
    found = plan_json("calibrate", history, "--profile", profile, "--contaminated")
    assert (found["num_runs"], found["passed_over"]["contaminated"]) == (3, 0)


def test_keys_of_the_answer_are_on_the_page(plan_json, profile, history):
    found = plan_json("calibrate", history, "--profile", profile)
    section = PAGE.partition("\n## plan calibrate\n")[2].partition("\n## ")[0]
    keys = {*found, *found["factors"][0], *found["passed_over"], *found["before"]}
    assert {key for key in keys if f"`{key}`" not in section} == set()


def test_no_run_to_calibrate_with_is_bad_input(plan, profile, tmp_path, run):
    path, output = tmp_path / "runs.jsonl", tmp_path / "calibrated.json"
    append_run(path, replace(run, contaminated=True))
    done = plan("calibrate", path, "--profile", profile, "-o", output)
    assert done.exit_code == 3
    assert "no run to calibrate" in done.stderr
    assert "1 contaminated (--contaminated includes them)" in done.stderr
    assert not output.exists()


def test_profiles_without_measured_times_are_bad_input(plan, profile, tmp_path, run):
    model = read_profile(profile)
    bare = replace(model, layers=tuple(replace(layer, times=()) for layer in model.layers))
    path, history = tmp_path / "bare.json", tmp_path / "runs.jsonl"
    path.write_text(json.dumps(to_tree(bare)))
    append_run(history, replace(run, profile_hash=sha256_of(to_tree(bare))))
    done = plan("calibrate", history, "--profile", path)
    assert done.exit_code == 3
    assert "layer 'embedding' has no measured times on 'V100'" in done.stderr


def test_existing_files_are_left_alone(plan, profile, history, tmp_path):
    output = tmp_path / "calibrated.json"
    output.write_text("mine")
    done = plan("calibrate", history, "--profile", profile, "-o", output)
    assert done.exit_code == 3
    assert output.read_text() == "mine"
    assert plan("calibrate", history, "--profile", profile, "-o", output, "--force").exit_code == 0
