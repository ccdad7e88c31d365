"""`plan solve`."""

import json
import math

import pytest

from stagecut.planner.core.units import format_seconds
from stagecut.planner.solvers.registry import SOLVERS


def test_answer_is_on_stdout_and_progress_on_stderr(plan, tiny):
    done = plan("solve", *tiny)
    assert done.exit_code == 0
    assert "tiny-6 on tiny-2x2: " in done.stdout
    for words in ("iteration time", "lower bound", "gap", "bubbles", "samples per second", "faster than an even split"):
        assert words in done.stdout
    assert done.stdout.splitlines()[-1].count("proven optimal") == 1
    assert "best " in done.stderr
    assert "best " not in done.stdout


def test_planner_with_an_objective_of_its_own_states_it(plan, plan_json, tiny):
    """Alpa has its latency; an even split is not made for anything."""
    own = plan_json("solve", *tiny, "--solver", "alpa")["own_objective"]
    assert own["name"] == "latency, s"
    shown = f"own objective       {format_seconds(own['value'])} (latency)"
    assert shown in plan("solve", *tiny, "--solver", "alpa").stdout
    assert "own objective" not in plan("solve", *tiny, "--solver", "even").stdout


def test_quiet_leaves_stderr_empty(plan, tiny, tmp_path):
    assert plan("solve", *tiny, "--quiet", "-o", tmp_path / "plan.json").stderr == ""


def test_json_numbers_agree_with_one_another(plan_json, tiny):
    """32 samples in objective_s seconds; gap = (objective - bound) / objective."""
    answer = plan_json("solve", *tiny)
    assert (answer["schema"], answer["status"], answer["solver"]) == (1, "optimal", "milp")
    assert answer["samples_per_s"] == pytest.approx(32 / answer["objective_s"])
    assert answer["gap"] == pytest.approx((answer["objective_s"] - answer["bound_s"]) / answer["objective_s"])
    assert 0 <= answer["gap"] <= 1e-4
    assert answer["even_split_s"] > answer["objective_s"]
    assert answer["history"][-1]["objective_s"] == answer["objective_s"]
    plan = answer["plan"]
    assert plan["micro_batch"] * plan["num_microbatches"] * len(plan["pipelines"]) == 32
    assert answer["provenance"]["options"]["solver"] == "milp"
    assert answer["problem"]["devices"] == 4


def test_json_holds_the_plan_of_the_plan_file(plan_json, tiny, tmp_path):
    path = tmp_path / "plan.json"
    answer = plan_json("solve", *tiny, "-o", path)
    written = json.loads(path.read_text())
    assert answer["plan"] == written["plan"]
    assert answer["provenance"] == written["provenance"]
    assert answer["objective_s"] == written["certificate"]["objective_s"] == written["predicted"]["iteration_s"]


def test_same_search_writes_the_same_bytes(plan, tiny, plan_file, tmp_path):
    again = tmp_path / "again.json"
    plan("solve", *tiny, "-o", again)
    assert again.read_bytes() == plan_file.read_bytes()


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name != "textbook-milp-cbc"])
def test_every_solver_writes_a_plan_that_checks(plan, tiny, tmp_path, solver):
    """The CBC twin of the textbook program differs in its last step only, and takes seconds."""
    path = tmp_path / "plan.json"
    assert plan("solve", *tiny, "--solver", solver, "-o", path).exit_code == 0
    assert json.loads(path.read_text())["certificate"]["solver"] == solver
    assert plan("check", path).exit_code == 0


def test_trace_and_chart_are_written(plan, tiny, tmp_path):
    trace, chart = tmp_path / "trace.json", tmp_path / "chart.svg"
    done = plan("solve", *tiny, "--trace", trace, "--gantt", chart)
    assert done.exit_code == 0
    assert json.loads(trace.read_text())["traceEvents"]
    assert "<svg" in chart.read_text()
    assert f"wrote {trace}" in done.stderr


def test_options_go_before_the_job_file(plan_json, tiny):
    """The job file allows micro-batches 1, 2, 4 and two schedules for 32 samples."""
    problem = plan_json("solve", *tiny, "--dry-run")["problem"]
    assert {variant["micro_batch"] for variant in problem["variants"]} == {1, 2, 4}
    assert {variant["schedule"] for variant in problem["variants"]} == {"1f1b", "eager-1f1b"}
    options = ("--global-batch", 12, "--micro-batch", "3", "--schedule", "gpipe", "--pipelines", "1")
    changed = plan_json("solve", *tiny, *options, "--dry-run")["problem"]
    variant = {"schedule": "gpipe", "micro_batch": 3, "num_microbatches": 4}
    assert [{key: found[key] for key in variant} for found in changed["variants"]] == [variant]
    assert changed["global_batch"] == 12


def test_without_a_job_file_every_schedule_but_interleaved_is_allowed(plan_json):
    arguments = ("--model", "vgg16", "--cluster", "cpu-2", "--global-batch", 6)
    problem = plan_json("solve", *arguments, "--dry-run")["problem"]
    found = {(variant["schedule"], variant["micro_batch"]) for variant in problem["variants"]}
    assert found == {(schedule, size) for schedule in ("gpipe", "1f1b", "eager-1f1b") for size in (1, 2)}


def variants(plan_json, *arguments):
    return plan_json("solve", *arguments, "--dry-run")["problem"]["variants"]


def test_allowed_pipelines_are_kept(plan_json, tiny):
    """Two devices in each of two servers: one pipeline, or one on each half; 32 samples allow every size for both."""
    assert {variant["pipelines"] for variant in variants(plan_json, *tiny)} == {1}
    assert {variant["pipelines"] for variant in variants(plan_json, *tiny, "--pipelines", "auto")} == {1, 2}
    only_two = variants(plan_json, *tiny, "--pipelines", "2")
    assert {(variant["pipelines"], *variant["host_splits"]) for variant in only_two} == {(2, 1, 1)}
    assert all(variant["num_microbatches"] * variant["micro_batch"] == 16 for variant in only_two)


def test_plan_of_two_pipelines_is_told_and_checks(plan, tiny, tmp_path):
    """Each runs on one device of both servers; the table shows the first."""
    path = tmp_path / "plan.json"
    done = plan("solve", *tiny, "--pipelines", "2", "-o", path)
    assert done.exit_code == 0
    assert "2 pipelines on 1/2 of every server" in done.stdout
    assert "the first of 2 pipelines" in done.stdout
    assert len(json.loads(path.read_text())["plan"]["pipelines"]) == 2
    assert plan("check", path).exit_code == 0
    assert plan("explain", path, "--what-if", "nic").exit_code == 0


def test_number_of_pipelines_without_equal_shares_is_refused(plan, tiny):
    done = plan("solve", *tiny, "--pipelines", "3")
    assert done.exit_code == 3
    assert "pipelines" in done.stderr


def test_chunks_are_for_the_interleaved_schedule(plan, plan_json, tiny):
    found = variants(plan_json, *tiny, "--schedule", "interleaved", "--chunks", "2,3")
    assert {(variant["schedule"], variant["chunks"]) for variant in found} == {("interleaved", 2), ("interleaved", 3)}
    assert {variant["chunks"] for variant in variants(plan_json, *tiny)} == {1}
    done = plan("solve", *tiny, "--chunks", "2")
    assert done.exit_code == 2
    assert "interleaved" in done.stderr


def test_halved_micro_batches_are_planned_and_checked(plan, plan_json, tiny, tmp_path):
    """Half a forward of the tiny model is shorter than a whole one also with what an action costs."""
    path = tmp_path / "plan.json"
    whole = plan_json("solve", *tiny)["objective_s"]
    done = plan("solve", *tiny, "--slice", "auto", "--action-overhead", "0", "-o", path)
    assert done.exit_code == 0
    assert "halved during warm-up" in done.stdout
    written = json.loads(path.read_text())
    assert written["plan"]["num_sliced"] >= 1
    assert written["inputs"]["job"]["slice"] == "auto"
    assert written["predicted"]["iteration_s"] < whole
    assert plan("check", path).exit_code == 0
    assert plan_json("simulate", path)["num_sliced"] == written["plan"]["num_sliced"]
    written["plan"]["num_sliced"] += 1
    path.write_text(json.dumps(written))
    outcome = plan_json("check", path, exit_code=6)
    assert any("halved micro-batches, where" in fault for fault in outcome["faults"])


@pytest.mark.parametrize("word", ["often", "-1", "1.5"])
def test_number_of_halved_micro_batches_is_a_number_or_a_word(plan, tiny, word):
    done = plan("solve", *tiny, "--slice", word)
    assert done.exit_code == 2
    assert "write auto, never or a number such as 2" in done.stderr


def test_tensor_parallelism_makes_more_groups(plan_json, plan):
    """One replica of the model on 1, 2, 4 or all 8 devices; 3 is no power of two."""
    arguments = ("--model", "gpt2-345m", "--cluster", "h100-8", "--global-batch", 4)
    narrow = ("--micro-batch", "1", "--schedule", "1f1b", "--pipelines", "1", "--replicas", "1")
    for options, groups in ((("--tensor-parallel", "1"), 1), (("--tensor-parallel", "2,4"), 2), ((), 4)):
        (variant,) = variants(plan_json, *arguments, *narrow, *options)
        assert variant["device_groups"] == groups
    assert plan("solve", *arguments, "--tensor-parallel", "3").exit_code == 3


def test_zero1_is_asked_for_or_not(plan, tiny, tiny_folder, tmp_path):
    job = tmp_path / "job.yaml"
    job.write_text((tiny_folder / "job.yaml").read_text() + "zero1: true\n")
    stated = (*tiny[:4], "--job", job)
    for arguments, said in (
        (tiny, False),
        ((*tiny, "--zero1"), True),
        (stated, True),
        ((*stated, "--no-zero1"), False),
    ):
        assert ("ZeRO-1" in plan("solve", *arguments, "--dry-run").stdout) == said


def test_allowed_replicas_are_kept(plan_json, tiny):
    answer = plan_json("solve", *tiny, "--replicas", "1")
    assert {stage["replicas"] for stage in answer["plan"]["pipelines"][0]["stages"]} == {1}
    assert plan_json("solve", *tiny, "--replicas", "1-4")["objective_s"] <= answer["objective_s"]


def test_auto_replicas_undo_the_job_file(plan_json, tiny, tiny_folder, tmp_path):
    job = tmp_path / "job.yaml"
    job.write_text((tiny_folder / "job.yaml").read_text() + "replicas: [1]\n")
    stated = (*tiny[:4], "--job", job, "--pipelines", "1")
    narrow = plan_json("solve", *stated)
    wide = plan_json("solve", *stated, "--replicas", "auto")
    assert wide["objective_s"] < narrow["objective_s"]


@pytest.mark.parametrize(
    ("options", "params_bytes", "optimizer"),
    [
        ((), 2, (2, 2, 12)),
        (("--precision", "fp32"), 4, (4, 4, 8)),
        (("--precision", "bf16", "--optimizer", "sgd"), 2, (2, 2, 8)),
    ],
)
def test_catalogue_model_is_built_in_the_precision_of_the_job(plan, tmp_path, options, params_bytes, optimizer):
    """VGG-16 has 138,357,544 parameters; optimizer: bytes of weight, gradient, moments with the fp32 copy."""
    path = tmp_path / "plan.json"
    arguments = ("--model", "vgg16", "--cluster", "h100-8", "--global-batch", 4, "--solver", "even")
    assert plan("solve", *arguments, *options, "-o", path).exit_code == 0
    inputs = json.loads(path.read_text())["inputs"]
    held = sum(layer["params_bytes"] for layer in inputs["profile"]["layers"])
    assert held == params_bytes * 138_357_544
    table = inputs["job"]["optimizer"]
    assert (table["weight_bytes"], table["gradient_bytes"], table["state_bytes"]) == optimizer


def test_sequence_length_reaches_the_model(plan, tmp_path):
    path = tmp_path / "plan.json"
    arguments = ("--model", "gpt2-345m", "--cluster", "h100-8", "--global-batch", 4, "--solver", "even")
    assert plan("solve", *arguments, "--sequence-length", 256, "-o", path).exit_code == 0
    assert json.loads(path.read_text())["inputs"]["profile"]["sequence_length"] == 256


def test_dry_run_writes_nothing_and_shows_the_problem(plan, tiny, tmp_path):
    """Six layers have 6 * 7 / 2 = 21 runs."""
    path = tmp_path / "plan.json"
    done = plan("solve", *tiny, "--dry-run", "-o", path)
    assert done.exit_code == 0
    assert "6 layers" in done.stdout
    assert "21 ranges of layers" in done.stdout
    assert not path.exists()


def test_dry_run_checks_the_outputs(plan, tiny, plan_file):
    assert plan("solve", *tiny, "--dry-run", "-o", plan_file).exit_code == 3


def test_force_overwrites(plan, tiny, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text("old")
    assert plan("solve", *tiny, "-o", path).exit_code == 3
    assert path.read_text() == "old"
    assert plan("solve", *tiny, "-o", path, "--force").exit_code == 0
    assert json.loads(path.read_text())["schema"] == 1


@pytest.fixture
def too_small(tiny, tiny_folder, tmp_path):
    """The tiny problem on devices of 0.1 GB; its 64 M parameters need 1.02 GB with AdamW, 16 bytes each."""
    cluster = tmp_path / "small.yaml"
    cluster.write_text((tiny_folder / "cluster.yaml").read_text().replace("memory_bytes: 16e9", "memory_bytes: 0.1e9"))
    return "--model", tiny[1], "--cluster", cluster, "--job", tiny[5]


def test_infeasible_says_what_is_short_and_what_would_help(plan, plan_json, too_small, tmp_path):
    path = tmp_path / "plan.json"
    done = plan("solve", *too_small, "-o", path)
    assert done.exit_code == 4
    assert "short by" in done.stdout
    assert "infeasible: " in done.stdout
    assert not path.exists()
    answer = plan_json("solve", *too_small, exit_code=4)
    assert (answer["status"], answer["plan"], answer["objective_s"]) == ("infeasible", None, None)
    for shortage in answer["shortages"]:
        assert shortage["short_bytes"] == pytest.approx(shortage["needed_bytes"] - shortage["limit_bytes"])
        assert shortage["limit_bytes"] == 0.1e9
        assert shortage["remedy"]
    assert answer["shortages"]


def test_replicas_that_nothing_can_have_are_told(plan, tiny):
    done = plan("solve", *tiny, "--replicas", "3")
    assert done.exit_code == 4
    assert "--replicas" in done.stdout


def test_no_plan_in_the_time_given_has_a_code_of_its_own(plan_json):
    arguments = ("--model", "gpt2-xl", "--cluster", "hetpipe-16", "--global-batch", 64)
    answer = plan_json("solve", *arguments, "--solver", "greedy", "--time-limit", "1e-9", exit_code=5)
    assert answer["status"] == "no-plan-in-budget"
    assert answer["plan"] is None


@pytest.mark.parametrize(("written", "meant"), [("0.5%", 0.005), ("0.25", 0.25), ("0", 0.0)])
def test_gap_is_a_number_or_in_percent(plan_json, tiny, written, meant):
    answer = plan_json("solve", *tiny, "--gap", written)
    assert answer["provenance"]["options"]["gap"] == meant
    assert answer["gap"] <= meant + 1e-9


@pytest.mark.parametrize(("written", "meant"), [("none", None), ("0", None), ("7.5", 7.5)])
def test_time_limit_may_be_left_out(plan_json, tiny, written, meant):
    assert plan_json("solve", *tiny, "--time-limit", written)["provenance"]["options"]["time_limit_s"] == meant


def test_shared_rows_give_the_bound_of_the_dp(plan_json, tiny):
    bounds = [
        plan_json("solve", *tiny, "--rows", "shared", "--gap", "0", "--solver", solver)["row_bound_s"]
        for solver in ("milp", "dp")
    ]
    assert math.isclose(*bounds, rel_tol=1e-9)


def test_limit_that_ended_the_search_is_told(plan, plan_json, tiny):
    """No program holds less than a megabyte."""
    done = plan("solve", *tiny, "--memory-limit", "1MB")
    assert done.exit_code == 5
    assert "no plan yet when the memory limit was reached" in done.stdout
    answer = plan_json("solve", *tiny, "--memory-limit", "1 MiB", exit_code=5)
    assert (answer["status"], answer["stopped_by"]) == ("no-plan-in-budget", "memory limit")
    assert answer["provenance"]["options"]["memory_limit_bytes"] == 2**20
    assert plan_json("solve", *tiny, "--time-limit", "1e-9", exit_code=5)["stopped_by"] == "time limit"


@pytest.mark.parametrize(("written", "meant"), [("none", None), ("0.5TB", 5e11), ("64GiB", 2**36), ("900000 MB", 9e11)])
def test_memory_limit_has_a_unit(plan_json, tiny, written, meant):
    answer = plan_json("solve", *tiny, "--memory-limit", written)
    assert answer["provenance"]["options"]["memory_limit_bytes"] == meant
    assert (answer["status"], answer["stopped_by"]) == ("optimal", None)


def test_history_is_in_the_answer(plan_json, tiny):
    answer = plan_json("solve", *tiny)
    for point in answer["history"]:
        assert point.keys() == {"seconds", "objective_s", "bound_s"}
    assert answer["history"][-1]["seconds"] <= answer["seconds"]


def test_convergence_is_drawn(plan, tiny, tmp_path):
    path = tmp_path / "search.svg"
    done = plan("solve", *tiny, "--convergence", path)
    assert done.exit_code == 0
    assert f"wrote {path}" in done.stderr
    assert "tiny-6 on tiny-2x2: milp, gap 0" in path.read_text()
    assert plan("solve", *tiny, "--convergence", path).exit_code == 3
    assert plan("solve", *tiny, "--convergence", path, "--force").exit_code == 0


def test_search_without_a_plan_is_drawn_too(plan, tiny, tmp_path):
    path, plan_path = tmp_path / "search.svg", tmp_path / "plan.json"
    assert plan("solve", *tiny, "--time-limit", "1e-9", "--convergence", path, "-o", plan_path).exit_code == 5
    assert "no plan" in path.read_text()
    assert not plan_path.exists()


def test_options_as_large_as_they_may_be_make_a_plan_file_that_can_be_read(plan, tiny, tmp_path):
    """A job file lists up to 1000 sizes, and no number of a file is above 1e30: such limits are none."""
    path = tmp_path / "plan.json"
    limits = ("--time-limit", "1e300", "--memory-limit", "9" * 40 + "TB", "--gap", "0.999999", "--solver", "even")
    lists = ("--micro-batch", "1-1000", "--replicas", "1-1000", "--seed", 2**31 - 1, "--threads", 1024)
    assert plan("solve", *tiny, *limits, *lists, "--action-overhead", "1e6", "--quiet", "-o", path).exit_code == 0
    assert plan("simulate", path).exit_code == 0
    assert "lists more than 1000 numbers" in plan("solve", *tiny, "--micro-batch", "1-1001").stderr
