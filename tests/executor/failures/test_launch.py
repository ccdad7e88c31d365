"""Real processes: whatever happens to one rank, the run ends with one message and nothing is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from stagecut.executor.ranks.failures import RunError
from stagecut.executor.ranks.launch import launch

ROOT = Path(__file__).parents[3]
STUB = ("-m", "tests.executor.rank_stub")
PATH = f"{ROOT}{os.pathsep}{Path(__file__).with_name('lean')}"
WATCHDOG_S = 120


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Launch the stub, failing in one way."""
    monkeypatch.setenv("PYTHONPATH", PATH)

    def launched(how, *, num_ranks=2, timeout_s=WATCHDOG_S, max_restarts=0):
        names = [f"rank {rank} (slow/{rank}, stage {rank})" for rank in range(num_ranks)]
        launch(
            [*STUB, how, str(timeout_s), str(tmp_path)],
            num_ranks=num_ranks,
            names=names,
            max_restarts=max_restarts,
            timeout_s=timeout_s,
        )

    return launched


@pytest.fixture
def started(tmp_path):
    """Launch the stub from a process of its own; the process, and its ranks once all of them are at work."""
    processes = []

    def begin(how, *, num_ranks=2):
        arguments = [*STUB, how, "600", str(tmp_path)]
        code = f"from stagecut.executor.ranks.launch import launch; launch({arguments!r}, num_ranks={num_ranks})"
        variables = {"PYTHONPATH": PATH, "TMPDIR": str(tmp_path)}
        environment = {**os.environ, **variables}
        process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment, stderr=subprocess.PIPE)
        processes.append(process)
        files = [tmp_path / f"pid{rank}" for rank in range(num_ranks)]
        _until(lambda: all(file.exists() and file.read_text() for file in files))
        return process, [int(file.read_text()) for file in files]

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def _until(happened):
    end = time.monotonic() + WATCHDOG_S
    while not happened():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.05)


def _is_gone(pid):
    """Whether there is no such process, or only a zombie waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def _pids(folder):
    return [int(path.read_text()) for path in folder.glob("pid*")]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("dead", r"^rank 1 \(slow/1, stage 1\) was killed by SIGKILL"),
        ("raising", r"^rank 1 \(slow/1, stage 1\): ValueError: no such layer$"),
    ],
)
def test_one_message_names_the_rank_and_the_cause(run, how, message, tmp_path):
    """Rank 0 waits for rank 1 meanwhile, and loses its connection: that is not the cause."""
    with pytest.raises(RunError, match=message) as caught:
        run(how)
    assert caught.value.exit_code == 1
    assert len(str(caught.value).splitlines()) == 1
    assert all(_is_gone(pid) for pid in _pids(tmp_path))


def test_rank_at_the_end_of_the_chain_of_waits_is_the_hung_one(run, tmp_path):
    """Rank 0 waits for 1, which waits for 2: whichever gives up first names rank 2, whose stopped process is ended."""
    with pytest.raises(RunError, match=r"^rank 2 \(slow/2, stage 2\) hung: rank [01] .*waited 3 s.*--timeout"):
        run("stopped", num_ranks=3, timeout_s=3)
    assert all(_is_gone(pid) for pid in _pids(tmp_path))


def test_rank_that_hangs_while_all_leave_is_the_only_one_blamed(run, tmp_path):
    """Rank 2 stops behind the barrier; the others, who wait for everyone, see in the store who is missing."""
    with pytest.raises(RunError, match=r"^rank 2 \(slow/2, stage 2\) hung: rank [01] .*waited 3 s"):
        run("leaving", num_ranks=3, timeout_s=3)
    assert all(_is_gone(pid) for pid in _pids(tmp_path))


def test_second_attempt_finds_a_fresh_store(run, tmp_path):
    """Rank 1 dies in attempt 0; in attempt 1 the all-reduce gives 0 + 1 in each of 4 elements.

    The ranks, forked from one process, have random numbers of their own all the same.
    """
    before = signal.getsignal(signal.SIGTERM), dict(os.environ)
    run("once", max_restarts=1)
    assert (tmp_path / "done0").read_text() == "1 4"
    assert (tmp_path / "done1").read_text() == "1 4"
    assert (tmp_path / "random0").read_text() != (tmp_path / "random1").read_text()
    assert (signal.getsignal(signal.SIGTERM), dict(os.environ)) == before, "the agent leaves nothing behind"


def test_killing_the_launcher_leaves_no_process(started):
    process, pids = started("hung")
    process.kill()
    _until(lambda: all(_is_gone(pid) for pid in pids))


def test_interruption_of_the_launcher_ends_all_ranks(started):
    process, pids = started("hung")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=WATCHDOG_S)
    assert all(_is_gone(pid) for pid in pids)
    assert told.count(b"Traceback") == 1, "of the launcher alone"
