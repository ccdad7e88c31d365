"""How a search ended: exit codes, internal faults, and why nothing fits."""

from collections.abc import Iterable

import click

from stagecut.planner.choice_graphs.result import ChoiceResult
from stagecut.planner.cli.parameters.groups import is_verbose
from stagecut.planner.cli.process.faults import print_internal_fault
from stagecut.planner.cli.process.interruptions import INTERRUPTED
from stagecut.planner.cli.views.problem import num_groups
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Result, Status
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.report.tables import shortage_table
from stagecut.planner.report.text_table import print_table
from stagecut.planner.sharding_search.scheme_result import SchemeResult

DIFFERS = 6
EXIT_CODES = {
    Status.OPTIMAL: 0,
    Status.FEASIBLE: 0,
    Status.INFEASIBLE: 4,
    Status.NO_PLAN: 5,
    Status.INTERRUPTED: INTERRUPTED,
}


def compared_exit_code(results: Iterable[Result | WaveResult]) -> int:
    """0 with a plan; otherwise it says whether there is proof that none fits."""
    found = list(results)
    statuses = {result.status for result in found}
    if Status.INTERRUPTED in statuses:
        return EXIT_CODES[Status.INTERRUPTED]
    if any(result.plan is not None for result in found):
        return 0
    return EXIT_CODES[Status.INFEASIBLE if Status.INFEASIBLE in statuses else Status.NO_PLAN]


def print_fault(result: Result | WaveResult | ChoiceResult | SchemeResult, *, of: str = "") -> None:
    """Report an internal fault inside a search, named where there are several; its plan and bound still stand."""
    if result.fault is not None:
        reason = f"{of}: {result.fault.reason}" if of else result.fault.reason
        print_internal_fault(reason, result.fault.traceback, verbose=is_verbose())


def print_shortages(problem: Problem, result: Result) -> None:
    """Why nothing fits: which stages lack how much memory, or that no device group is allowed at all."""
    if result.shortages:
        print_table(shortage_table(problem.model, result.shortages))
        click.echo()
    elif result.status is Status.INFEASIBLE and not any(num_groups(problem, each) for each in problem.variants):
        click.echo(
            "no device group can hold a stage: no allowed replica count divides the micro-batch and fits in one "
            "island; allow others with --replicas, --tensor-parallel or --micro-batch\n"
        )
