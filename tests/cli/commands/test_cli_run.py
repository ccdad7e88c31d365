"""`plan run`: what it refuses at once, and real runs of two ranks."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.io.files.plan_file import read_plan_file

ROOT = Path(__file__).parents[3]
LAYERS = "tests.executor.tiny_layers"


@pytest.fixture(scope="module")
def two_stages(plan, tiny_folder, tmp_path_factory):
    """The tiny problem with one device of each kind: two stages, without replicas."""
    folder = tmp_path_factory.mktemp("two")
    cluster = folder / "cluster.yaml"
    cluster.write_text((tiny_folder / "cluster.yaml").read_text().replace("count: 2", "count: 1"))
    path = folder / "plan.json"
    files = ("--model", tiny_folder / "profile.yaml", "--cluster", cluster, "--job", tiny_folder / "job.yaml")
    assert plan("solve", *files, "--quiet", "-o", path).exit_code == 0
    stages = json.loads(path.read_text())["plan"]["pipelines"][0]["stages"]
    assert [len(stage["devices"]) for stage in stages] == [1, 1]
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    exit_code: int
    stdout: str
    stderr: str


@pytest.fixture
def run(plan, two_stages, tmp_path, monkeypatch, capfd):
    """Launch a run from this process; what it and its ranks printed, and the exit code."""
    monkeypatch.chdir(ROOT)

    def launched(layers, *options):
        fixed = ["--steps", "2", "--warmup", "1", "--history", tmp_path / "runs.jsonl", "--device", "cpu"]
        done = plan("run", two_stages, "--layers", f"{LAYERS}:{layers}", *fixed, *options)
        ranks = capfd.readouterr()
        return Done(exit_code=done.exit_code, stdout=done.stdout + ranks.out, stderr=done.stderr + ranks.err)

    return launched


@pytest.fixture
def refused(plan, two_stages, monkeypatch, tmp_path):
    """Messages of a run that does not even start."""
    monkeypatch.chdir(ROOT)

    def message(*options, path=two_stages):
        done = plan("run", path, "--history", tmp_path / "runs.jsonl", *options)
        assert done.exit_code == 3, done.output
        assert not (tmp_path / "runs.jsonl").exists()
        return done.stderr

    return message


def test_without_torch_it_says_how_to_install_it(refused, monkeypatch):
    monkeypatch.setattr("stagecut.planner.cli.options.profile.find_spec", lambda _name: None)
    assert refused() == "Error: plan run needs torch: pip install 'stagecut[run]'\n"


def test_output_that_exists_is_refused_before_anything_starts(refused, tmp_path):
    path = tmp_path / "run.json"
    path.write_text("mine")
    assert "--force" in refused("-o", path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (f"{LAYERS}:renamed", "layer 0 of model 'tiny-6' is 'embeddings', but the plan was made for 'embedding'"),
        (f"{LAYERS}:absent", f"--layers {LAYERS}:absent: AttributeError: "),
        ("no.such.module:chain", "--layers no.such.module:chain: ModuleNotFoundError: "),
        ("math", "--layers math: must be package.module:function"),
        ("os:getcwd", "--layers os:getcwd: must return a ModuleChain or a list of modules, not a str"),
    ],
)
def test_layers_that_are_not_the_plans_are_refused(refused, layers, message):
    assert message in refused("--layers", layers)


def test_model_that_the_catalogue_lacks_needs_layers(refused):
    stderr = refused()
    assert "unknown model 'tiny-6'" in stderr
    assert "--layers package.module:function" in stderr


def test_plan_for_more_gpus_than_there_are_is_refused_with_the_numbers(refused, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    stderr = refused("--layers", f"{LAYERS}:chain", "--device", "cuda")
    assert "the plan has 2 devices, this host has 1 GPUs" in stderr


def test_pipelines_that_step_together_drop_no_workers(refused):
    assert refused("--drop-workers").startswith("Error: --drop-workers: the plan has no virtual workers")


def test_run_is_checked_measured_recorded_and_drawn_with_the_losses_of_one_process(run, tmp_path):
    """Three steps of which two are measured; both lanes of the trace begin at zero.

    Threads on one device see the same samples with the same weights.
    """
    files = tmp_path / "run.json", tmp_path / "trace.json", tmp_path / "runs.jsonl"
    done = run("chain", "--check", "--json", "-o", files[0], "--trace", files[1], "--learning-rate", "0.1")
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer == json.loads(files[0].read_text())
    assert [json.loads(line)["plan_hash"] for line in files[2].read_text().splitlines()] == [answer["plan_hash"]]
    assert answer["check"]["passed"]
    assert (len(answer["steps"]), answer["warmup"], len(answer["stages"])) == (3, 1, 2)
    assert answer["steps"][-1]["loss"] < answer["steps"][0]["loss"]
    processes = {event["pid"] for event in json.loads(files[1].read_text())["traceEvents"]}
    assert len(processes) == 2
    assert all(f"wrote {file}" in done.stderr for file in files)
    together = json.loads(run("chain", "--json", "--learning-rate", "0.1", "--one-process").stdout)
    losses = [[step["loss"] for step in steps] for steps in (answer["steps"], together["steps"])]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert len(together["stages"]) == 2


def test_fault_in_a_layer_names_rank_stage_and_samples(run):
    done = run("raising")
    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "Error: rank 0 (fast/0, stage 1): F of samples [0, 4) on stage 1: ValueError: no such head"
    ]


def test_check_that_fails_has_an_exit_code_of_its_own(run):
    done = run("random", "--check", "--quiet")
    assert done.exit_code == 6
    assert done.stderr.startswith("Error: --check FAILED: loss differs by")
    assert "check               FAILED" in done.stdout


@pytest.fixture(scope="module")
def catalogue_plan(plan, tmp_path_factory):
    """GPT-2 medium on sixteen GPUs of four types; two share every replica, a stage is computed again."""
    path = tmp_path_factory.mktemp("catalogue") / "plan.json"
    choices = ("--micro-batch", "2", "--tensor-parallel", "2", "--pipelines", "1", "--recompute", "always")
    problem = ("--model", "gpt2-345m", "--cluster", "hetpipe-16", "--global-batch", "24")
    assert plan("solve", *problem, *choices, "--solver", "greedy", "--quiet", "-o", path).exit_code == 0
    return path


def test_dilated_run_plays_a_plan_of_the_catalogue_with_stand_ins(plan, catalogue_plan, tmp_path):
    """Sixteen ranks in this process, in the times of the plan: the first lines say how, and how long it takes."""
    options = ("--steps", "1", "--warmup", "1", "--check", "--json", "--history", tmp_path / "runs.jsonl")
    done = plan("run", catalogue_plan, "--mode", "dilated", *options)
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    how = answer["dilation"]
    assert (answer["mode"], how["stand_ins"], how["one_process"]) == ("dilated", True, True)
    assert answer["check"]["passed"]
    assert answer["measured_s"] > 0.98 * answer["predicted_s"]
    assert answer["steps"][-1]["loss"] < answer["steps"][0]["loss"]
    first, second, *steps = done.stderr.splitlines()
    assert first.startswith("dilated: 16 ranks as threads of one process")
    assert second.startswith(f"time scale {how['time_scale']:g}: an iteration planned to take ")
    assert "2 steps take about" in second
    assert [line.partition(":")[0] for line in steps[:1]] == ["step 1 of 2"]
    assert " left" in steps[0]


def test_dilated_run_takes_the_time_scale_that_is_asked_for(plan, catalogue_plan, tmp_path):
    """Far too small a one: the answer says that this machine fell behind, and for how long."""
    options = ("--steps", "1", "--warmup", "0", "--time-scale", "0.001", "--history", tmp_path / "runs.jsonl")
    done = plan("run", catalogue_plan, "--mode", "dilated", *options)
    assert done.exit_code == 0, done.stderr
    assert "this machine fell behind: actions began or ended late for up to" in done.stdout
    assert "--time-scale (now 0.001)" in done.stdout


def test_dilated_run_of_real_layers_that_do_not_fit_is_refused(plan, tmp_path):
    """80 B parameters and more; nothing is built."""
    path = tmp_path / "plan.json"
    problem = ("--model", "llama3-70b", "--cluster", "three-generations-64", "--global-batch", "64")
    assert plan("solve", *problem, "--solver", "even", "--quiet", "-o", path).exit_code == 0
    done = plan("run", path, "--mode", "dilated", "--real-layers")
    assert done.exit_code == 3
    assert "of memory, but only" in done.stderr
    assert "omit --real-layers" in done.stderr


@pytest.mark.parametrize("options", [("--time-scale", "2"), ("--real-layers",)])
def test_options_of_dilated_runs_are_refused_without_it(plan, two_stages, options):
    done = plan("run", two_stages, *options)
    assert done.exit_code == 2
    assert f"{options[0]} requires --mode dilated" in done.stderr


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "fast"])
def test_time_scale_must_be_a_positive_factor(plan, two_stages, value):
    done = plan("run", two_stages, "--mode", "dilated", "--time-scale", value)
    assert done.exit_code == 2
    assert "is neither auto nor a factor from 1e-09 to 1e+09" in done.stderr


def test_dilated_run_of_processes_is_no_faster_than_planned(run):
    """Layers of one's own; every action and message is held to its planned time."""
    done = run("chain", "--mode", "dilated", "--steps", "1", "--warmup", "0", "--json", "--own-processes")
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["mode"] == "dilated"
    assert (answer["dilation"]["stand_ins"], answer["dilation"]["one_process"]) == (False, False)
    assert answer["measured_s"] > 0.999 * answer["predicted_s"]


def test_fault_of_a_thread_names_rank_stage_and_samples(run):
    done = run("raising", "--one-process")
    assert done.exit_code == 1
    assert done.stderr.splitlines() == [
        "Error: rank 0 (fast/0, stage 1): F of samples [0, 4) on stage 1: ValueError: no such head"
    ]


@pytest.fixture(scope="module")
def one_stage(plan, tiny_folder, tmp_path_factory):
    """The tiny problem on a single device, for a run without other processes."""
    folder = tmp_path_factory.mktemp("one")
    cluster = folder / "cluster.yaml"
    before, _, after = (tiny_folder / "cluster.yaml").read_text().partition("  - name: slow\n")
    cluster.write_text(before.replace("count: 2", "count: 1") + "network:" + after.partition("network:")[2])
    path = folder / "plan.json"
    files = ("--model", tiny_folder / "profile.yaml", "--cluster", cluster, "--job", tiny_folder / "job.yaml")
    assert plan("solve", *files, "--quiet", "-o", path).exit_code == 0
    return read_plan_file(path)


@pytest.fixture
def alone(monkeypatch):
    """This process as the only rank."""
    from stagecut.executor.ranks.world import join_world

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    world = join_world(device="cpu")
    yield world
    world.leave()


def _options(layers):
    from stagecut.executor.run.options import RunOptions

    return RunOptions(num_steps=2, warmup=1, layers=f"{LAYERS}:{layers}")


def test_loss_that_is_no_number_stops_the_run_and_names_rank_stage_and_action(one_stage, alone):
    """NaN in the forward of the last layer, which rank 0 has; the first step does not come to its end."""
    from stagecut.executor.ranks.failures import LossError
    from stagecut.executor.run.loop import RunObserver
    from stagecut.executor.run.options import build_pipeline
    from stagecut.executor.run.rank import train

    options, steps = _options("not_a_number"), []
    pipeline, batch = build_pipeline(one_stage, options, alone)
    with pytest.raises(LossError, match=r"^rank 0 .*F of samples \[0, .*the loss of step 1 is nan; .*'head'"):
        train(
            pipeline,
            batch,
            plan_file=one_stage,
            options=options,
            world=alone,
            observer=RunObserver(step=lambda step, _trace: steps.append(step)),
        )
    assert steps == []


@pytest.mark.parametrize(("layers", "passed"), [("chain", True), ("random", False), ("not_a_number", False)])
def test_check_passes_where_a_single_process_gives_the_same(one_stage, alone, layers, passed):
    from stagecut.executor.run.comparison import check_step

    assert check_step(one_stage, _options(layers), alone).passed is passed


def test_check_before_a_run_leaves_the_measured_memory_as_it_is(one_stage, alone):
    """The check holds a second model in float64, but only the tensors of the run are counted, to the byte."""
    from stagecut.executor.run.comparison import check_step
    from stagecut.executor.run.loop import RunObserver
    from stagecut.executor.run.options import build_pipeline
    from stagecut.executor.run.rank import train

    def memory_bytes():
        options = _options("chain")
        pipeline, batch = build_pipeline(one_stage, options, alone)
        observer = RunObserver(step=lambda _step, _trace: None)
        outcome = train(pipeline, batch, plan_file=one_stage, options=options, world=alone, observer=observer)
        return outcome.record.stages[0].measured.memory_bytes

    before = memory_bytes()
    assert check_step(one_stage, _options("chain"), alone).passed
    assert memory_bytes() == before
    # Six layers of 8 x 8 + 8 numbers: weights, gradients and two states of AdamW, of 4 bytes each.
    assert before > 6 * 72 * 16


def test_check_is_refused_for_statistics_of_a_micro_batch(one_stage, alone):
    from stagecut.executor.run.comparison import check_step

    with pytest.raises(BadInputError, match="--check: layer 'head' has batch normalisation"):
        check_step(one_stage, _options("normalised"), alone)


def test_one_process_is_checked_too(run):
    passed, failed = (run(layers, "--one-process", "--check", "--json") for layers in ("chain", "random"))
    assert (passed.exit_code, failed.exit_code) == (0, 6)
    assert json.loads(passed.stdout)["check"]["passed"]
    assert failed.stderr.splitlines()[-1].startswith("Error: --check FAILED: loss differs by")
