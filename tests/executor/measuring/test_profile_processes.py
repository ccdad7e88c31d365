"""Processes that measure at once: answers, faults and ends. No torch in them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stagecut.executor.measure.workers import run_workers
from stagecut.planner.core.messages.errors import BadInputError

ROOT = Path(__file__).parents[3]


def own_rank(worker, offset):
    worker.meet()
    worker.finish()
    while not worker.all_finished(1):
        time.sleep(0.001)
    return worker.rank + offset


def bad_input(worker):
    raise BadInputError("the first", "the second")


def fails_in_one(worker):
    if worker.rank == 1:
        raise ValueError("no such thing")
    worker.meet()


def dies_in_one(worker):
    if worker.rank == 0:
        os._exit(7)
    worker.meet()


def waits_for_ever(worker):
    sys.stdout.write(f"{os.getpid()}\n")
    sys.stdout.flush()
    time.sleep(600)


def test_answers_come_by_rank():
    assert run_workers(own_rank, 2, 10) == [10, 11]


def test_bad_input_of_a_process_is_raised_as_it_was():
    with pytest.raises(BadInputError) as raised:
        run_workers(bad_input, 1)
    assert raised.value.complaints == ("the first", "the second")


def test_a_fault_in_one_process_ends_all_and_names_it():
    with pytest.raises(RuntimeError, match="process 1: ValueError: no such thing"):
        run_workers(fails_in_one, 2)


def test_a_process_that_dies_ends_all_and_is_named():
    with pytest.raises(RuntimeError, match="process 0 ended without an answer, exit code 7"):
        run_workers(dies_in_one, 2)


def test_processes_die_with_the_one_that_started_them():
    """Killed, so that it can do nothing for them."""
    command = [sys.executable, "-m", "tests.executor.measuring.test_profile_processes"]
    parent = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    children = [int(parent.stdout.readline()) for _ in range(2)]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert parent.stdout.read() == ""  # comes to its end when nobody holds it any more
    assert [pid for pid in children if alive(pid)] == []


def alive(pid):
    """A zombie that nobody has collected yet is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    run_workers(waits_for_ever, 2)
