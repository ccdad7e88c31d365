"""What goes wrong, as lines on stderr and an exit code: the one place for it."""

import errno
import traceback

import click

from planner.core.errors import BadInputError, OutputError, StagecutError, in_one_line
from planner.core.visible import visible

INTERNAL_FAULT = 1
INTERRUPTED = 130
STDOUT_FAULTS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What the system says of an answer that cannot be written; faults of files are turned into ours where they happen."""
_HELP = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""Wrong usage whose message is the whole help; older versions of click have no such fault."""


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
    if isinstance(fault, click.ClickException) and not isinstance(fault, _HELP):
        fault.message = visible(fault.message)  # type: ignore[misc]
    if isinstance(fault, click.ClickException | click.exceptions.Exit) or _is_closed_pipe(fault):
        raise fault
    if isinstance(fault, KeyboardInterrupt | click.Abort):
        click.echo("Error: interrupted", err=True)
        return INTERRUPTED
    if isinstance(fault, StagecutError):
        for line in fault.complaints if isinstance(fault, BadInputError) else str(fault).split("\n"):
            click.echo(f"Error: {visible(line)}", err=True)
        return fault.exit_code
    if isinstance(fault, OSError) and fault.errno in STDOUT_FAULTS:
        click.echo(f"Error: stdout: cannot be written: {fault.strerror}", err=True)
        return OutputError.exit_code
    tell_internal_fault(in_one_line(fault), "".join(traceback.format_exception(fault)), verbose=verbose)
    return INTERNAL_FAULT


def tell_internal_fault(reason: str, where: str, *, verbose: bool) -> None:
    """Tell the user of a fault that is our own.

    Parameters
    ----------
    where
        The traceback, shown only if verbose.
    """
    if verbose:
        click.echo(where, err=True, nl=False)
    hint = "" if verbose else "; run it again with -v to see where"
    click.echo(f"Error: internal fault: {reason}{hint}", err=True)


def _is_closed_pipe(fault: BaseException) -> bool:
    return isinstance(fault, OSError) and fault.errno == errno.EPIPE
