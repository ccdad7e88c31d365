"""Which fault ended a run, and of which rank: no processes."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from stagecut.executor.ranks.failures import (
    FailureKind,
    FailureReport,
    LossError,
    RunError,
    WaitError,
    failure_report,
)
from stagecut.executor.ranks.reporting import read_reports, write_report
from stagecut.executor.ranks.root_cause import failure_message, root_cause
from stagecut.executor.ranks.wait_graph import WaitGraph
from stagecut.executor.schedule.rank_layout import Role
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.simulator.action_lists import Action, Op

ROLE = Role(rank=2, device="slow/0", pipeline=0, group=1, replica=0, tensor_rank=0, stages=(1,))


class OutOfMemoryError(RuntimeError):
    """An error with the name of torch's own."""


def _caused(fault, cause):
    fault.__cause__ = cause
    return fault


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (BadInputError("plan.json: no"), FailureKind.INPUT),
        (LossError("rank 1: the loss of step 1 is inf", rank=1), FailureKind.LOSS),
        (MemoryError(), FailureKind.MEMORY),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), FailureKind.MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), FailureKind.MEMORY),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), FailureKind.ERROR),
        (KeyError("layer"), FailureKind.ERROR),
        (RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer"), FailureKind.LOST),
        (_caused(WaitError((1,)), RuntimeError("Timed out waiting 5000ms for recv operation")), FailureKind.HUNG),
        (_caused(WaitError((1,)), RuntimeError("anything else")), FailureKind.LOST),
    ],
)
def test_every_fault_has_a_kind(fault, kind):
    assert failure_report(fault).kind is kind


def test_report_names_rank_stage_device_and_action():
    report = failure_report(ValueError("bad shape\nand more"), ROLE, action=Action(Op.FORWARD, 1, 0, 4))
    assert (report.rank, report.stages, report.device) == (2, (1,), "slow/0")
    assert report.message == "F of samples [0, 4) on stage 1: ValueError: bad shape"
    assert "ValueError" in report.trace


@pytest.mark.parametrize(
    "text",
    [
        "[/build/gloo/buffer.cc:78] Timed out waiting 4000ms",
        "Timed out waiting 4000ms. This is typically caused by a remote worker crashing. Good luck!",
    ],
)
def test_place_in_the_source_of_a_library_and_its_advice_are_left_out(text):
    assert failure_report(RuntimeError(text)).message == "RuntimeError: Timed out waiting 4000ms"


def test_reports_survive_their_files_and_stay_with_their_attempt(tmp_path):
    reports = [_report(1, FailureKind.HUNG, to_blame=(2, 3), at_s=2.0), _report(0, FailureKind.ERROR, at_s=1.0)]
    for report in reports:
        write_report(tmp_path, report, attempt=1)
    write_report(tmp_path, _report(5, FailureKind.ERROR), attempt=0)
    assert read_reports(tmp_path, attempt=1) == tuple(reversed(reports))


def _report(rank, kind, *, message="it failed", to_blame=(), at_s=0.0):
    return FailureReport(rank=rank, kind=kind, message=message, to_blame=to_blame, at_s=at_s)


def test_own_fault_goes_before_what_others_noticed_of_it():
    """Rank 0 noticed first; rank 1, which has the fault, wrote its report later."""
    reports = [_report(0, FailureKind.LOST, to_blame=(1,)), _report(1, FailureKind.ERROR, at_s=9.0)]
    assert str(root_cause(reports, {0: 1, 1: 1})) == "rank 1: it failed"


def test_earliest_of_equal_faults_is_the_cause():
    reports = [_report(0, FailureKind.ERROR, at_s=5.0), _report(1, FailureKind.ERROR, at_s=4.0)]
    assert str(root_cause(reports, {}, names=["first", "second"])) == "second: it failed"


def test_loss_that_is_no_number_is_told_of_the_rank_where_it_began():
    """Whoever comes first to say so: here rank 0, of what rank 1 computed; in a run, and under torchrun."""
    message = "rank 1 (slow/0, stage 1): F of samples [0, 4) on stage 1: the loss of step 2 is nan"
    report = failure_report(LossError(message, rank=1), rank=0)
    assert (report.kind, report.to_blame) == (FailureKind.LOSS, (1,))
    assert str(root_cause([report], {0: 1})) == failure_message(report) == message


def test_lost_rank_is_named_where_its_end_is_not_known():
    """Told to end by somebody else than the launcher; or on another host."""
    report = _report(0, FailureKind.LOST, to_blame=(1,))
    assert str(root_cause([report], {0: 1, 1: -15})) == "rank 0: it failed; it waited for rank 1"
    assert failure_message(report, ["first", "second"]) == "first: it failed; it waited for second"


def test_bad_input_found_by_all_ranks_is_told_once():
    fault = BadInputError("one", "two")
    reports = [failure_report(fault, rank=rank) for rank in range(3)]
    cause = root_cause(reports, {0: 3, 1: 3, 2: 3})
    assert isinstance(cause, BadInputError)
    assert cause.complaints == ("one", "two")


def test_memory_that_torch_does_not_get_comes_with_advice():
    """2^60 numbers; the text is torch's own."""
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    cause = root_cause([failure_report(caught.value, rank=1)], {1: 1})
    assert re.search(r"^rank 1: out of memory: .*can't allocate memory.*smaller --micro-batch", str(cause))


def test_killed_rank_is_the_cause_of_lost_connections():
    cause = root_cause([_report(0, FailureKind.LOST, to_blame=(1,))], {0: 1, 1: -11, 2: -15})
    assert str(cause) == "rank 1 was killed by SIGSEGV"


def test_rank_killed_because_it_hung_is_called_hung():
    cause = root_cause([_report(0, FailureKind.HUNG, to_blame=(1,))], {0: 1, 1: -9}, timeout_s=5)
    assert str(cause).startswith("rank 1 hung: rank 0 waited 5 s for an answer")


@pytest.mark.parametrize(
    ("exit_codes", "message"),
    [
        ({1: 1, 0: -15}, "rank 1 exited with code 1 without saying why"),
        ({1: -15}, "rank 1 was terminated by SIGTERM"),
    ],
)
def test_end_without_a_report_is_told_by_its_exit_code(exit_codes, message):
    cause = root_cause([], exit_codes)
    assert isinstance(cause, RunError)
    assert str(cause) == message


@pytest.fixture
def rows(tmp_path):
    return [WaitGraph(rank, 4, path=tmp_path / "rows") for rank in range(4)]


def test_ranks_see_each_other_through_the_file(rows):
    rows[1].waits_for((2, 3))
    assert rows[0].awaited_by(1) == (2, 3)
    assert rows[0].pid_of(1) == os.getpid()
    rows[1].waits_for(())
    assert rows[0].awaited_by(1) == ()


def test_culprit_is_at_the_end_of_the_chain(rows):
    """0 waits for 1, 1 for 2 and 3, 2 for 3; 3 computes."""
    rows[0].waits_for((1,))
    rows[1].waits_for((2, 3))
    rows[2].waits_for((3,))
    assert rows[0].culprits((1,)) == (3,)


def test_circle_of_waits_has_no_culprit(rows):
    rows[0].waits_for((1,))
    rows[1].waits_for((0,))
    assert rows[0].culprits((1,)) == ()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells whether a process is stopped")
def test_stopped_process_is_the_culprit_even_in_a_circle_of_waits(rows, monkeypatch):
    """0 waits for 1, which was stopped while it waited for 0."""
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        sleeper.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
        rows[0].waits_for((1,))
        rows[1].waits_for((0,))
        monkeypatch.setattr(rows[0], "pid_of", {0: os.getpid(), 1: sleeper.pid}.get)
        assert rows[0].culprits((1,)) == (1,)
        sleeper.kill()


def test_world_of_one_needs_no_file():
    assert WaitGraph(0, 1).culprits(()) == ()
