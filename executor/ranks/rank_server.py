"""Imports torch and the executor once and forks the ranks of a run, which share them.

`python -m stagecut.executor.ranks.rank_server`: its arguments are the descriptor of a socket, the number of ranks, sets
of ranks that can be done without as JSON, and what to run in each of them, a module and its arguments. Nothing here
uses a GPU, since a CUDA context does not survive a fork.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress

from stagecut.executor.ranks.dispensable import Crews, goes_on, lost_crews
from stagecut.executor.ranks.environment import LAUNCHER, launcher_folder
from stagecut.executor.ranks.failures import failure_report
from stagecut.executor.ranks.rank_process import end_rank, end_with_launcher
from stagecut.executor.ranks.subprocesses import POLL_S, SHUTDOWN_S

_SHARED = ("numpy", "torch", "torch._dynamo", "torch.distributed", "stagecut.executor.loading")
"""Takes seconds to import. The first optimizer imports `torch._dynamo`."""


def main() -> None:
    """Fork the ranks, and tell the launcher how they ended; in a rank, do its work."""
    launcher, num_ranks = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    crews: Crews = json.loads(sys.argv[3])
    module, arguments = sys.argv[4], sys.argv[5:]
    end_with_launcher()
    _import_shared()
    os.environ[LAUNCHER] = str(os.getpid())
    pids: list[int] = []
    for rank in range(num_ranks):
        pid = _fork(rank)
        if pid == 0:
            launcher.close()
            _be_rank(rank, module, arguments)
            return
        _lead_group(pid)
        pids.append(pid)
    launcher.sendall(json.dumps(_exit_codes(pids, launcher, crews)).encode())


def _import_shared() -> None:
    """What cannot be imported is for the ranks to tell."""
    gc.disable()
    with suppress(ImportError):
        for name in _SHARED:
            importlib.import_module(name)
    gc.enable()
    gc.freeze()  # a search for garbage would copy the pages that the ranks share


def _fork(rank: int) -> int:
    """Fork, or end with a report; the ranks forked so far end with this process."""
    try:
        return os.fork()
    except OSError as fault:
        end_rank(failure_report(fault, rank=rank))


def _be_rank(rank: int, module: str, arguments: list[str]) -> None:
    _lead_group(os.getpid())
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # as in processes that import it on their own; `random` sees to it itself
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _lead_group(pid: int) -> None:
    """Put a rank into a process group of its own, so that its children end with it.

    The rank and its parent both do it: either may be the first to need it.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.setpgid(pid, pid)


def _exit_codes(pids: list[int], launcher: socket.socket, crews: Crews) -> dict[int, int]:
    """Wait for all ranks; terminate the others when one fails, or all when the launcher hangs up.

    Of a rank that can be done without, only its set is terminated.

    Returns
    -------
    dict
        Exit codes of the ranks that failed; negative for signals.
    """
    codes: dict[int, int] = {}
    everyone = range(len(pids))
    answered_for: set[int] = set()
    while len(codes) < len(pids) and goes_on(codes, crews) and not select.select([launcher], [], [], POLL_S)[0]:
        _collect(pids, codes)
        lost = [rank for crew in lost_crews(codes, crews) for rank in crew if rank not in answered_for]
        if lost and goes_on(codes, crews):
            _end(pids, codes, lost)
            _answer_for({rank: codes[rank] for rank in lost if codes[rank]})
            answered_for |= set(lost)
    _end(pids, codes, everyone)
    return {rank: code for rank, code in sorted(codes.items()) if code != 0}


def _answer_for(codes: dict[int, int]) -> None:
    """Tell the ranks that go on which others have died."""
    from stagecut.executor.ranks.rendezvous import launcher_store
    from stagecut.executor.ranks.world import answer_for

    folder = launcher_folder()
    assert folder is not None
    store = launcher_store(folder)
    for rank, code in codes.items():
        answer_for(store, rank, code)


def _collect(pids: list[int], codes: dict[int, int]) -> None:
    """Note the exit codes of ranks that have ended since."""
    for rank in _running(codes, range(len(pids))):
        pid, status = os.waitpid(pids[rank], os.WNOHANG)
        if pid:
            codes[rank] = os.waitstatus_to_exitcode(status)


def _end(pids: list[int], codes: dict[int, int], ranks: Sequence[int]) -> None:
    """Terminate those that still run, with their children; those that have to be killed count as terminated."""
    _signal([pids[rank] for rank in _running(codes, ranks)], signal.SIGTERM)
    deadline_s = time.monotonic() + SHUTDOWN_S
    while _running(codes, ranks) and time.monotonic() < deadline_s:
        time.sleep(POLL_S / 10)
        _collect(pids, codes)
    killed = _running(codes, ranks)
    _signal([pids[rank] for rank in killed], signal.SIGKILL)
    for rank in killed:
        os.waitpid(pids[rank], 0)
        codes[rank] = -signal.SIGTERM


def _running(codes: dict[int, int], ranks: Sequence[int]) -> list[int]:
    return [rank for rank in ranks if rank not in codes]


def _signal(pids: Collection[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.killpg(pid, number)


if __name__ == "__main__":
    main()
