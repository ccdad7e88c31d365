"""Commands take measured profiles of the catalogue like profile files."""

import pytest

from stagecut.models import measured_profiles
from stagecut.planner.io.files.plan_file import read_plan_file
from tests.measured import NAME, write_measured


@pytest.fixture(autouse=True)
def measured(tmp_path, monkeypatch):
    """The one measured profile of the catalogue."""
    monkeypatch.setattr(measured_profiles, "FOLDER", tmp_path)
    return write_measured(tmp_path)


def test_measured_models_are_listed(plan_json):
    assert plan_json("models")["models"][-1]["name"] == NAME


def test_layers_of_a_measured_model_are_shown(plan):
    shown = plan("models", "show", NAME)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith(f"{NAME}: 50 layers")
    assert "in bf16" in shown.stdout


def test_an_unknown_measured_model_is_bad_input(plan):
    unknown = plan("models", "show", "bert-large@gpu-x")
    assert unknown.exit_code == 3
    assert "there is no such file" in unknown.stderr


def test_a_measured_model_is_planned_in_its_own_precision(plan, tmp_path):
    """The devices of the cluster have another name: their times are estimated."""
    path = tmp_path / "plan.json"
    options = ("--cluster", "h100-8", "--global-batch", "16", "--solver", "even", "-o", path)
    solved = plan("solve", "--model", NAME, *options)
    assert solved.exit_code == 0, solved.output
    problem = read_plan_file(path).problem
    assert (problem.model.name, problem.model.precision, problem.job.precision) == (NAME, "bf16", "bf16")
