"""`plan run` of virtual workers: what it refuses, what it answers, and what it says of a rank that dies."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.waves import Carrier, LocalStep
from tests.wave_files import LOCAL, SPREAD, tiny_plan, worker, write_wave_file

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
        (["--check"], "--check: virtual workers that step after each minibatch"),
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
    """Synchronous waves leave nothing to chance: two stages and a server have the losses of the threads of one.

    Both agree with a single process that computes the batch of all workers at once.
    """
    path = write_wave_file(tmp_path / "waves.json", short_plan(local_step=LocalStep.WAVE))
    answers = [json.loads(run("--json", "--check", *options, path=path)[1]) for options in ([], ["--one-process"])]
    processes, threads = answers
    assert (processes["one_process"], threads["one_process"]) == (False, True)
    assert processes["losses"] == pytest.approx(threads["losses"], rel=1e-6)
    assert threads["losses"][-1] < threads["losses"][0]
    assert processes["check"]["passed"]
    assert threads["check"]["passed"]


def test_workers_that_share_a_batch_unequally_are_checked(run, tmp_path):
    """Waves of 3 x 2 samples and 1 x 2 samples, summed by all-reduce over stages of other cuts."""
    fast = worker(("fast/0", "slow/0"), (0, 4, 6), in_flight=3, wave=3, flushes=True, minibatch=2)
    slow = worker(("slow/1",), (0, 6), in_flight=1, wave=1, flushes=True, minibatch=2)
    plan = WavePlan(workers=(fast, slow), local_step=LocalStep.WAVE, carrier=Carrier.DELAYED_ALL_REDUCE)
    path = write_wave_file(tmp_path / "waves.json", plan)
    options = ("--check", "--one-process", "--quiet", "--json")
    assert json.loads(run(*options, path=path)[1])["check"]["passed"]
    code, stdout, stderr = run(*options, layers="random", path=path)
    assert (code, json.loads(stdout)["check"]["passed"]) == (6, False)
    assert stderr.startswith("Error: --check FAILED: loss differs by")


def test_trace_has_predicted_and_measured_lanes(run, tmp_path):
    """Wave 1, the only one measured, of two minibatches; stages with layers of two owners have two lanes more."""
    plan = write_wave_file(tmp_path / "waves.json", tiny_plan(owners=SPREAD))
    path = tmp_path / "trace.json"
    code, _, stderr = run("--one-process", "--steps", "1", "--trace", path, path=plan)
    assert code == 0
    assert f"wrote {path}" in stderr
    events = json.loads(path.read_text())["traceEvents"]
    processes = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
    assert list(processes) == [
        *(f"worker {index}, predicted" for index in range(2)),
        "links, predicted",
        *(f"worker {index}, measured" for index in range(2)),
    ]
    own = processes["worker 0, measured"]
    lanes = {e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == own}
    assert {"stage 0  fast/0", "stage 1  fast/1"} <= lanes
    assert lanes <= {
        "stage 0  fast/0",
        "stage 1  fast/1",
        "stage 0: server of fast",
        "stage 0: server of slow",
        "stage 1: server of slow",
    }
    found = [e["name"] for e in events if e["pid"] == own and e["tid"] == 0 and e.get("cat") in {"forward", "backward"}]
    assert sorted(found) == ["B 3", "B 4", "F 3", "F 4"]


def test_history_of_waves_does_not_disturb_that_of_other_runs(run, plan, tmp_path):
    assert run("--one-process", "--quiet")[0] == 0
    done = plan("history", tmp_path / "runs.jsonl")
    assert "skipped" not in done.stderr


def test_fault_in_a_layer_names_rank_worker_and_stage(run, tmp_path):
    """The head is on the second stage of either worker; whichever fails first is named."""
    code, stdout, stderr = run("--quiet", "--one-process", "-o", tmp_path / "run.json", layers="raising")
    assert (code, stdout) == (1, "")
    errors = [line for line in stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert "stage 1): ValueError: no such head" in errors[0]
    assert not (tmp_path / "runs.jsonl").exists()
    assert not (tmp_path / "run.json").exists()


def test_run_goes_on_without_a_worker_that_hangs(run, tmp_path):
    """Two workers of a stage, ranks 0 and 2, and a server. Worker 1 stops in the second minibatch of its third wave.

    D = 0 and H = 2: the gate of wave 2, its second minibatch, has let it pass, so all have pushed waves 0 and 1. Worker
    0 waits in vain at the gate of wave 3.
    """
    path = write_wave_file(tmp_path / "waves.json", short_plan())
    options = ("--drop-workers", "--timeout", "2", "--steps", "4", "-o", tmp_path / "run.json")
    code, stdout, stderr = run(*options, layers="stopped_later", path=path)
    assert code == 0, stderr
    record = json.loads((tmp_path / "run.json").read_text())
    left, lost = record["workers"]
    assert (left["dropped"], lost["measured_samples_per_s"], record["error"]) == (None, None, None)
    assert lost["dropped"]["num_waves"] == 2
    reason = "rank 2 (slow/0, worker 1, stage 0) hung: rank 0 (fast/0, worker 0, stage 0) waited 2 s for an answer"
    assert lost["dropped"]["reason"].startswith(reason)
    sentence = "worker 1 was dropped after 2 waves"
    assert sentence in stdout
    assert f"Warning: {sentence}" in stderr
    assert ("wave 1 of 6" in stderr) and ("wave 6 of 6" in stderr)  # a server counts them, which is there to the end
    assert len(record["losses"]) == 6
    assert json.loads((tmp_path / "runs.jsonl").read_text()) == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"local_step": LocalStep.WAVE}, "with one step a wave"),
        ({"owners": ()}, "a delayed all-reduce waits for all workers"),
    ],
)
def test_plans_that_need_all_workers_do_not_drop_any(run, tmp_path, change, message):
    path = write_wave_file(tmp_path / "waves.json", tiny_plan(**change))
    code, stdout, stderr = run("--drop-workers", path=path)
    assert (code, stdout) == (3, "")
    assert stderr.startswith(f"Error: --drop-workers: {message}")


@pytest.mark.parametrize("options", [["--one-process"], ["--mode", "dilated"]])
def test_threads_cannot_be_dropped(run, options):
    assert run("--drop-workers", *options)[0] == 2


def short_plan(local_step=LocalStep.MINIBATCH):
    """Two workers of one device each, and a server: three processes."""
    flushes = local_step is LocalStep.WAVE
    workers = tuple(worker((name,), (0, 6), in_flight=1, wave=2, flushes=flushes) for name in ("fast/0", "slow/0"))
    return WavePlan(workers=workers, local_step=local_step, owners=LOCAL)
