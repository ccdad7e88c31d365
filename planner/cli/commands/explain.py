"""`plan explain`: say what binds in a plan, and what one more unit would bring."""

import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from stagecut.planner.cli.options.example import example
from stagecut.planner.cli.options.files import InputFile
from stagecut.planner.cli.options.groups import general_options
from stagecut.planner.cli.options.outputs import print_json
from stagecut.planner.cli.options.search import option_values, search_options, solver_option
from stagecut.planner.cli.options.types import words_of
from stagecut.planner.cli.prediction import Played, play, provenance_tree
from stagecut.planner.cli.process.cancellable import run_cancellable, stop_requests
from stagecut.planner.cli.process.interruptions import INTERRUPTED
from stagecut.planner.cli.views.answers import tell_fault
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Result, Status
from stagecut.planner.core.units import format_seconds
from stagecut.planner.core.visible import visible
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.io.files.plan_file import Certificate, PlanFile, provenance_of, read_plan_file
from stagecut.planner.report.explanation import (
    WhatIfOutcome,
    binding_summary,
    binding_table,
    what_if_summary,
    what_if_table,
)
from stagecut.planner.report.labels import plan_label
from stagecut.planner.report.progress import progress
from stagecut.planner.report.summary import SCHEMA
from stagecut.planner.report.text_table import print_table
from stagecut.planner.report.verdict import quality
from stagecut.planner.simulator.binding import Binding, what_binds
from stagecut.planner.solvers.diagnosis.what_if import Unit, plan_in, what_ifs
from stagecut.planner.solvers.registry import run, solver_for
from stagecut.planner.solvers.search.options import SolveOptions

UNCHANGED = "nothing more"
"""The first row: the cluster as it is."""


@click.command("explain", epilog=example("plan explain plan.json", "plan explain plan.json --what-if server,nic"))
@click.argument("path", metavar="PLAN", type=InputFile())
@click.option(
    "--what-if",
    "units",
    type=words_of([str(unit) for unit in Unit]),
    default="all",
    show_default=True,
    metavar="LIST|all",
    help=f"Units to try one more of: {', '.join(Unit)}.",
)
@solver_option
@search_options(gap="5e-3", seconds="10", each="what-if")
@click.option("--quiet", is_flag=True, help="Nothing on stderr but errors.")
@general_options
def command(
    path: Path, units: tuple[str, ...], solver: str, options: SolveOptions, *, quiet: bool, as_json: bool
) -> None:
    """Say what binds in a plan, and what one more unit would bring.

    What binds: the device, the link and the memory that come nearest to their limits. What if: one
    more server of each class, 10 % more memory, interfaces and fabrics twice as fast; each is
    searched beginning from this plan. Ctrl-C keeps the rows that are finished.
    """
    plan_file = read_plan_file(path)
    played = play(plan_file.problem, plan_file.plan)
    if not quiet and faults(CostModel(plan_file.problem), plan_file.plan):
        click.echo(
            f"{visible(path)}: outside the search space, as plan check tells; searches begin without it", err=True
        )
    with stop_requests() as cancelled:
        inquiry = Inquiry(plan_file=plan_file, played=played, solver=solver, options=options, cancelled=cancelled)
        chosen = tuple(Unit(unit) for unit in units)
        outcomes = run_cancellable(lambda: list(inquiry.outcomes(chosen, quiet=quiet)), cancelled)
        explanation = Explanation(
            path=path,
            plan_file=plan_file,
            played=played,
            binding=what_binds(played.costs, played.timeline),
            outcomes=outcomes,
            complete=len(outcomes) == 1 + len(list(what_ifs(plan_file.problem, chosen))),
        )
        for outcome in outcomes:
            tell_fault(outcome.result, of=outcome.what)
        if as_json:
            explanation.print_as_json(solver, options)
        else:
            explanation.print_for_people()
    click.get_current_context().exit(0 if explanation.complete else INTERRUPTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """Searches that begin from one plan."""

    plan_file: PlanFile
    played: Played
    solver: str
    options: SolveOptions
    cancelled: threading.Event

    def outcomes(self, units: Sequence[Unit], *, quiet: bool) -> Iterator[WhatIfOutcome]:
        """The plan itself, then one more of each unit; up to the first search that was cancelled.

        A plan that was not proven to be optimal is searched for anew with nothing more, so that what
        only a longer search brings is not put down to the units.
        """
        problem, plan = self.plan_file.problem, self.plan_file.plan
        unchanged = self._unchanged(quiet=quiet)
        if unchanged.status is Status.INTERRUPTED:
            return
        yield self._outcome(UNCHANGED, "", unchanged)
        best = unchanged.plan or plan
        for what_if in what_ifs(problem, tuple(units)):
            result = self._search(what_if.name, what_if.problem, plan_in(what_if.problem, problem, best), quiet=quiet)
            if result.status is Status.INTERRUPTED:
                return
            yield self._outcome(what_if.name, str(what_if.unit), result)

    def _unchanged(self, *, quiet: bool) -> Result:
        certificate = self.plan_file.certificate
        if certificate.status is Status.OPTIMAL:
            return _as_stated(certificate, self.plan_file.plan, self.played.timeline.iteration_s)
        return self._search(UNCHANGED, self.plan_file.problem, self.plan_file.plan, quiet=quiet)

    def _search(self, name: str, problem: Problem, start: Plan | None, *, quiet: bool) -> Result:
        with progress(sys.stderr, quiet=quiet, solver=name) as observer:
            return run(
                problem,
                solver_for(self.solver, problem, rows=self.options.rows),
                self.options,
                observer=observer,
                cancelled=self.cancelled,
                start=start,
            )

    def _outcome(self, what: str, unit: str, result: Result) -> WhatIfOutcome:
        return WhatIfOutcome(what=what, unit=unit, planned_s=self.played.timeline.iteration_s, result=result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What there is to tell about a plan."""

    path: Path
    plan_file: PlanFile
    played: Played
    binding: Binding
    outcomes: Sequence[WhatIfOutcome]
    complete: bool
    """Whether there is an outcome for every unit."""

    def print_for_people(self) -> None:
        """Two tables."""
        problem, timeline = self.played.problem, self.played.timeline
        proven = quality(_as_stated(self.plan_file.certificate, self.played.plan, timeline.iteration_s))
        click.echo(
            f"{problem.model.name} on {problem.cluster.name}: {plan_label(self.played.plan, zero1=problem.job.zero1)}"
        )
        click.echo(f"{format_seconds(timeline.iteration_s)} per iteration, {proven}\n")
        print_table(binding_table(self.played.plan, self.binding), sys.stdout)
        click.echo()
        print_table(what_if_table(self.outcomes), sys.stdout)
        if not self.complete:
            click.echo("\ninterrupted: the other rows are missing")

    def print_as_json(self, solver: str, options: SolveOptions) -> None:
        """Everything that is known."""
        problem = self.played.problem
        name = solver_for(solver, problem, rows=options.rows)
        provenance = provenance_of(problem, option_values(options, solver=name), seed=options.seed)
        print_json(
            {
                "schema": SCHEMA,
                "plan": str(self.path),
                "iteration_s": self.played.timeline.iteration_s,
                "bubble_fraction": self.played.timeline.bubble_fraction,
                "binds": binding_summary(self.played.plan, self.binding),
                "what_if": [what_if_summary(outcome) for outcome in self.outcomes],
                "complete": self.complete,
                "provenance": provenance_tree(provenance),
            }
        )


def _as_stated(certificate: Certificate, plan: Plan, iteration_s: float) -> Result:
    """What the plan file says of its plan, without a search."""
    return Result(
        status=certificate.status,
        solver=certificate.solver,
        seconds=0.0,
        plan=plan,
        objective_s=iteration_s,
        bound_s=certificate.bound_s,
    )
