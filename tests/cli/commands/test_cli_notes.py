"""What is ignored is said, and what times rest on."""

import math
import re

import pytest

from stagecut.models import build_cluster, build_model
from stagecut.planner.cli.options.without_effect import USED_BY
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.solvers.exact import branch_and_bound, questions
from stagecut.planner.solvers.registry import SOLVERS, run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.catalogue import CATALOGUE


@pytest.fixture
def renamed(tiny, tiny_folder, tmp_path):
    """The tiny problem with data-sheet rates in the cluster and flops in the profile, whose text is changed."""

    def arguments(change):
        profile, cluster = tmp_path / "profile.yaml", tmp_path / "cluster.yaml"
        text = (tiny_folder / "profile.yaml").read_text()
        profile.write_text(change(text.replace("    params_bytes", "    forward_flops: 1e9\n    params_bytes")))
        rate = "    peak_flops_per_s: {fp16: 1e14}\n    memory_bytes:"
        cluster.write_text((tiny_folder / "cluster.yaml").read_text().replace("    memory_bytes:", rate))
        copies = {tiny_folder / path.name: path for path in (profile, cluster)}
        return [copies.get(each, each) for each in tiny]

    return arguments


def _misspelt(text):
    return text.replace("V100", "V-100")


def _in_ms(text):
    return re.sub(r"(?<=: )0\.(\d{3})", lambda found: str(int(found[1])), text)


def test_misspelt_device_type_is_named_with_the_nearest(plan, renamed):
    done = plan("solve", *renamed(_misspelt), "--solver", "greedy")
    assert "note: profile: times on 'V-100' are not used (6 layers)" in done.stderr
    assert "did you mean 'V100'?" in done.stderr
    assert "NO TIMES ON 'V100'" in done.stderr
    assert done.stdout.rstrip().endswith("layer times measured on T4, estimated on V100")


def test_notes_and_basis_are_in_the_json_even_if_quiet(plan_json, renamed, tiny):
    answer = plan_json("solve", *renamed(_misspelt), "--solver", "greedy", "--quiet")
    assert answer["times_rest_on"] == "both"
    assert len(answer["notes"]) == 2
    assert plan_json("solve", *tiny, "--solver", "greedy", "--quiet")["times_rest_on"] == "measured"


def test_options_that_no_solver_uses_are_named(plan, tiny):
    done = plan("solve", *tiny, "--solver", "greedy", "--gap", "0.1", "--seed", "3")
    assert "note: '--gap', '--seed': no effect with solver greedy" in done.stderr
    assert "--seed" not in plan("solve", *tiny, "--solver", "milp", "--seed", "3").stderr


def test_overridden_entries_of_a_job_file_are_named(plan, tiny):
    done = plan("solve", *tiny, "--solver", "greedy", "--global-batch", "64")
    assert "note: job file: overridden by '--global-batch'" in done.stderr


def test_what_divides_nothing_is_named(plan, tiny):
    done = plan("solve", *tiny[:-2], "--solver", "greedy", "--pipelines", "1,3", "--micro-batch", "1,3")
    assert "job: micro-batch 3 has no effect" in done.stderr
    assert "job: pipelines 3 has no effect" in done.stderr


def test_milliseconds_taken_for_seconds_are_noted_and_mended(plan, plan_json, renamed, tmp_path):
    """Layer times as if written in ms: 1000 times as long."""
    arguments = renamed(_in_ms)
    done = plan("solve", *arguments, "--solver", "greedy")
    assert "if the profile's times are in milliseconds: plan convert PROFILE --time-unit ms" in done.stderr
    profile, fixed = arguments[1], tmp_path / "fixed.json"
    before = plan_json("convert", profile, "-o", tmp_path / "same.json")
    after = plan_json("convert", profile, "--time-unit", "ms", "-o", fixed)
    assert after["device_types"][0]["forward_s"] == pytest.approx(before["device_types"][0]["forward_s"] / 1000)
    assert any("--time-unit ms" in note for note in before["notes"])


READ = set()


class _Watched(SolveOptions):
    """Options whose names are in `READ` once they have been read."""

    def __getattribute__(self, name):
        READ.add(name)
        return super().__getattribute__(name)


def _watched(problem, solver):
    """Run a solver; its result, and the options it read that are said to have no effect with it."""
    options = _Watched(gap=1e-4, time_limit_s=None)
    READ.clear()
    result = run(problem, solver, options)
    return result, READ & {name for name, solvers in USED_BY.items() if solver not in solvers}


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_option_that_a_solver_reads_is_said_to_have_no_effect(solver):
    _, misnamed = _watched(next(known.problem for known in CATALOGUE if known.name == "heterogeneous chain"), solver)
    assert misnamed == set()


def test_nor_is_any_that_milp_reads_for_a_program(monkeypatch):
    """Every node with one number of stages is given to a program."""
    monkeypatch.setattr(branch_and_bound, "PROGRAM_ARCS", math.inf)
    for most in ("MOST_PATHS", "MOST_TIMED_PATHS"):
        monkeypatch.setattr(questions, most, 0)
    job = Job(global_batch=32, optimizer=standard_optimizer("adamw", Precision.FP16))
    problem = Problem(model=build_model("resnet50"), cluster=build_cluster("mixed-server-8"), job=job)
    result, misnamed = _watched(problem, "milp")
    assert "MIPs solved" in dict(result.counts)
    assert misnamed == set()
