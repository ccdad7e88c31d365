"""The processes of a run on this machine: started together, ended together."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

from stagecut.executor.ranks.dispensable import Crews
from stagecut.executor.ranks.failures import RunError

SHUTDOWN_S = 3.0
"""How long a rank has to end after SIGTERM before it is killed."""
POLL_S = 0.1
_SERVER = "stagecut.executor.ranks.rank_server"


def run_ranks(
    arguments: Sequence[str], environment: Mapping[str, str], *, num_ranks: int, crews: Crews = ()
) -> dict[int, int]:
    """Run a module once in each rank and wait for all; when one fails, terminate the others.

    The ranks are forked from one process that has imported torch, in a session of its own. It terminates them when
    the connection to it ends.

    Parameters
    ----------
    arguments
        A module and its arguments.
    environment
        What the ranks share of theirs.
    crews
        Sets of ranks that the others can do without: when a rank of one fails, only that set is terminated.

    Returns
    -------
    dict
        Exit codes of the ranks that failed; negative for signals.

    Raises
    ------
    RunError
        If the system refuses to start the process.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            server = _start(
                [str(theirs.fileno()), str(num_ranks), json.dumps(crews), *arguments], environment, theirs.fileno()
            )
        try:
            answer = b"".join(iter(lambda: ours.recv(4096), b""))
        finally:
            with suppress(OSError):  # it has hung up already
                ours.shutdown(socket.SHUT_WR)  # it may still answer
            code = _end(server)
    if not answer:  # it never forked, or was killed, and all ranks with it
        return dict.fromkeys(range(num_ranks), code or -signal.SIGKILL)
    return {int(rank): code for rank, code in json.loads(answer).items()}


def _start(arguments: Sequence[str], environment: Mapping[str, str], descriptor: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", _SERVER, *arguments]
    try:
        return subprocess.Popen(command, env=environment, pass_fds=[descriptor], start_new_session=True)
    except OSError as fault:
        raise RunError(f"the ranks cannot be started: {fault.strerror}") from None


def _end(server: subprocess.Popen[bytes]) -> int:
    """Wait until all ranks have ended, or end them by killing the process that forked them."""
    try:
        return server.wait(2 * SHUTDOWN_S)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait()
