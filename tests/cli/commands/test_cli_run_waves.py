"""`plan run` of virtual workers: what it refuses, what it answers, and what it says of a rank that dies."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from stagecut.planner.core.wave_plan import WavePlan
from stagecut.planner.core.waves import LocalStep
from tests.wave_files import LOCAL, tiny_plan, worker, write_wave_file

ROOT = Path(__file__).parents[3]
LAYERS = "tests.executor.tiny_layers"


@pytest.fixture
def run(plan, tmp_path, monkeypatch, capfd):
    """Run a plan of two workers of two devices each and a server; the result, and what its ranks printed."""
    monkeypatch.chdir(ROOT)
    path = write_wave_file(tmp_path / "plan.json", tiny_plan())

    def launched(*options, layers="chain", path=path):
        fixed = ["--steps", "2", "--warmup", "1", "--history", tmp_path / "runs.jsonl", "--device", "cpu"]
        done = plan("run", path, "--layers", f"{LAYERS}:{layers}", *fixed, *options)
        ranks = capfd.readouterr()
        return done.exit_code, done.stdout + ranks.out, done.stderr + ranks.err

    return launched


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--check"], "--check: virtual workers"),
        (["--trace", "trace.json"], "--trace: runs of virtual workers are not drawn"),
        (["--mode", "dilated", "--own-processes"], "--mode dilated: plans of virtual workers are dilated as threads"),
    ],
)
def test_options_without_meaning_are_refused(run, tmp_path, options, message):
    code, stdout, stderr = run(*options)
    assert (code, stdout) == (3, "")
    assert stderr.startswith(f"Error: {message}")
    assert not (tmp_path / "runs.jsonl").exists()


def test_threads_answer_with_one_table(run, tmp_path):
    """N_m = H = 2 and D = 1: weights lack 1 own update at most, and (D + 2) H - 2 = 4 minibatches of the other worker.

    The first of four waves is not measured, nor is the last. There is a row for either worker and one for all.
    """
    code, stdout, _ = run("--one-process", "--quiet")
    assert code == 0
    rows = [line for line in stdout.splitlines() if line.startswith(("0  ", "1  ", "all  "))]
    assert len(rows) == 3
    assert all("1 | 1" in row and "4 | 4" in row for row in rows)
    record = json.loads((tmp_path / "runs.jsonl").read_text())
    assert (record["kind"], record["num_waves"], record["warmup"]) == ("waves", 4, 1)
    assert [worker["global_bound"] for worker in record["workers"]] == [4, 4]
    assert all(worker["global_staleness"] <= 4 for worker in record["workers"])


def test_processes_train_like_threads(run, tmp_path):
    """Synchronous waves leave nothing to chance: two stages and a server have the losses of the threads of one."""
    path = write_wave_file(tmp_path / "waves.json", short_plan(local_step=LocalStep.WAVE))
    answers = [json.loads(run("--json", *options, path=path)[1]) for options in ([], ["--one-process"])]
    processes, threads = answers
    assert (processes["one_process"], threads["one_process"]) == (False, True)
    assert processes["losses"] == pytest.approx(threads["losses"], rel=1e-6)
    assert threads["losses"][-1] < threads["losses"][0]


def test_history_of_waves_does_not_disturb_that_of_other_runs(run, plan, tmp_path):
    assert run("--one-process", "--quiet")[0] == 0
    done = plan("history", tmp_path / "runs.jsonl")
    assert "skipped" not in done.stderr


def test_fault_in_a_layer_names_rank_worker_and_stage(run, tmp_path):
    """The head is on the second stage of either worker; whichever fails first is named."""
    code, stdout, stderr = run("--quiet", "--one-process", layers="raising")
    assert (code, stdout) == (1, "")
    errors = [line for line in stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert "stage 1): ValueError: no such head" in errors[0]
    assert not (tmp_path / "runs.jsonl").exists()


def test_rank_that_dies_is_named(run, tmp_path):
    path = write_wave_file(tmp_path / "waves.json", short_plan())
    code, stdout, stderr = run("--quiet", "-o", tmp_path / "run.json", layers="dying", path=path)
    assert (code, stdout) == (1, "")
    assert "stage 0) was killed by SIGKILL" in stderr
    assert not (tmp_path / "run.json").exists()


def short_plan(local_step=LocalStep.MINIBATCH):
    """Two workers of one device each, and a server: three processes."""
    flushes = local_step is LocalStep.WAVE
    workers = tuple(worker((name,), (0, 6), in_flight=1, wave=2, flushes=flushes) for name in ("fast/0", "slow/0"))
    return WavePlan(workers=workers, local_step=local_step, owners=LOCAL)
