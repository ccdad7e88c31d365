"""Errors as lines on stderr and an exit code: the one place for it."""

import traceback

import click

from stagecut.planner.cli.process.cancellable import held
from stagecut.planner.cli.process.interruptions import INTERRUPTED, INTERRUPTIONS, LINE
from stagecut.planner.core.messages.errors import BadInputError, OutputError, StagecutError, in_one_line
from stagecut.planner.core.messages.visible import visible

INTERNAL_FAULT = 1
_HELP = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""Wrong usage whose message is the whole help; older versions of click have no such exception."""


def exit_code_of(fault: BaseException, *, verbose: bool) -> int:
    """Report a fault to the user and return its exit code; verbosely, with the traceback of an internal fault.

    What click handles itself, wrong usage and exits, is raised again.
    """
    if isinstance(fault, click.ClickException) and not isinstance(fault, _HELP):
        fault.message = visible(fault.message)  # type: ignore[misc]
    if isinstance(fault, click.ClickException | click.exceptions.Exit):
        raise fault
    # once interrupted, any fault may follow from that, other than an answer that cannot be written
    is_aftermath = INTERRUPTIONS.first_s is not None and not isinstance(fault, OutputError)
    if isinstance(fault, KeyboardInterrupt | click.Abort) or is_aftermath:
        with held():
            if INTERRUPTIONS.claim():
                click.echo(LINE, err=True)
        return INTERRUPTED
    if isinstance(fault, StagecutError):
        for line in fault.complaints if isinstance(fault, BadInputError) else str(fault).split("\n"):
            click.echo(f"Error: {visible(line)}", err=True)
        return fault.exit_code
    print_internal_fault(in_one_line(fault), "".join(traceback.format_exception(fault)), verbose=verbose)
    return INTERNAL_FAULT


def print_internal_fault(reason: str, details: str, *, verbose: bool) -> None:
    """Report an internal fault to the user, verbosely with its traceback as `details`."""
    if verbose:
        click.echo(details, err=True, nl=False)
    hint = "" if verbose else "; run again with -v for the traceback"
    click.echo(f"Error: internal fault: {reason}{hint}", err=True)
