"""The program `plan` from its first line to its last.

Signals are handled from before anything heavy is imported until the process is gone: the interpreter takes some
hundredths of a second to shut down, during which a signal would kill it.
"""

import os
import signal
import sys

from stagecut.planner.cli.process.interruptions import INTERRUPTED, INTERRUPTIONS


def main() -> None:
    """Run the command line of this process and end the process."""
    if {"RANK", "WORLD_SIZE"} <= os.environ.keys():  # one of several ranks: its launcher reports interruptions
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    else:
        INTERRUPTIONS.listen()
    from stagecut.planner.cli.process.streams import open_streams

    open_streams()
    _end(_exit_code())


def _exit_code() -> int:
    from stagecut.planner.cli.main import main as plan

    try:
        plan.main(prog_name="plan")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _end(code: int) -> None:
    import atexit

    from stagecut.planner.cli.process.faults import exit_code_of
    from stagecut.planner.core.messages.errors import OutputError

    try:
        sys.stdout.flush()
    except OutputError as fault:
        code = code or exit_code_of(fault, verbose=False)
    sys.stderr.flush()
    atexit._run_exitfuncs()
    if INTERRUPTIONS.first_s is not None or code == INTERRUPTED:
        INTERRUPTIONS.leave()
    os._exit(code)
