"""How a search ended, for whatever started the program."""

import sys

import click

from stagecut.planner.cli.options.groups import is_verbose
from stagecut.planner.cli.process.faults import tell_internal_fault
from stagecut.planner.cli.process.interruptions import INTERRUPTED
from stagecut.planner.cli.views.problem import num_groups
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Result, Status
from stagecut.planner.report.tables import shortage_table
from stagecut.planner.report.text_table import print_table

DIFFERS = 6
EXIT_CODES = {
    Status.OPTIMAL: 0,
    Status.FEASIBLE: 0,
    Status.INFEASIBLE: 4,
    Status.NO_PLAN: 5,
    Status.INTERRUPTED: INTERRUPTED,
}


def tell_fault(result: Result, *, of: str = "") -> None:
    """Say on stderr what went wrong inside a search, which has its plan and bound all the same.

    Parameters
    ----------
    of
        Which search it was, where there are several.
    """
    if result.fault is not None:
        reason = f"{of}: {result.fault.reason}" if of else result.fault.reason
        tell_internal_fault(reason, result.fault.traceback, verbose=is_verbose())


def print_shortages(problem: Problem, result: Result) -> None:
    """Why nothing fits: which stages lack how much memory, or that no device group is allowed at all."""
    if result.shortages:
        print_table(shortage_table(problem.model, result.shortages), sys.stdout)
        click.echo()
    elif result.status is Status.INFEASIBLE and not _has_groups(problem):
        click.echo("no group of devices may hold a stage: its replicas have to be allowed, to divide the micro-batch,")
        click.echo(
            "and to find devices in one island; allow others with --replicas, --tensor-parallel or --micro-batch\n"
        )


def _has_groups(problem: Problem) -> bool:
    return any(num_groups(problem, variant) > 0 for variant in problem.variants)
