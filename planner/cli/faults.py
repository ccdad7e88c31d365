"""What goes wrong, as lines on stderr and an exit code: the one place for it."""

import errno
import traceback

import click

from planner.core.errors import OutputError, StagecutError

INTERNAL_FAULT = 1
INTERRUPTED = 130
STDOUT_FAULTS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What the system says of an answer that cannot be written; faults of files are turned into ours where they happen."""


def exit_code_of(fault: BaseException, *, verbose: bool) -> int:
    """Tell the user about a fault; return the exit code that goes with it.

    Parameters
    ----------
    verbose
        Whether to print the traceback of faults that are our own.

    Raises
    ------
    BaseException
        The fault itself where click knows better: wrong usage, an exit, a closed pipe.
    """
    if isinstance(fault, click.ClickException | click.exceptions.Exit) or _is_closed_pipe(fault):
        raise fault
    if isinstance(fault, KeyboardInterrupt | click.Abort):
        click.echo("Error: interrupted", err=True)
        return INTERRUPTED
    if isinstance(fault, StagecutError):
        for line in str(fault).splitlines():
            click.echo(f"Error: {line}", err=True)
        return fault.exit_code
    if isinstance(fault, OSError) and fault.errno in STDOUT_FAULTS:
        click.echo(f"Error: stdout: cannot be written: {fault.strerror}", err=True)
        return OutputError.exit_code
    if verbose:
        click.echo("".join(traceback.format_exception(fault)), err=True, nl=False)
    hint = "" if verbose else "; run it again with -v to see where"
    reason = " ".join(str(fault).split())
    click.echo(f"Error: internal fault: {type(fault).__name__}: {reason}{hint}", err=True)
    return INTERNAL_FAULT


def _is_closed_pipe(fault: BaseException) -> bool:
    return isinstance(fault, OSError) and fault.errno == errno.EPIPE
