"""`plan solve`: find a plan, and prove how good it is."""

import math
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from stagecut.planner.cli.options.example import example
from stagecut.planner.cli.options.files import OutputFile
from stagecut.planner.cli.options.groups import general_options, is_verbose
from stagecut.planner.cli.options.outputs import (
    Pictures,
    announce,
    picture_options,
    print_json,
    write_convergence,
    write_plan_file,
)
from stagecut.planner.cli.options.problem import ProblemChoices, problem_options
from stagecut.planner.cli.options.search import option_values, search_options, solver_option
from stagecut.planner.cli.options.time_budget import TimeBudget
from stagecut.planner.cli.prediction import Played, plan_file_of, play, provenance_tree
from stagecut.planner.cli.process.cancellable import run_cancellable, stop_requests
from stagecut.planner.cli.views.answers import EXIT_CODES, print_shortages, tell_fault
from stagecut.planner.cli.views.plan import print_numbers, print_plan
from stagecut.planner.cli.views.problem import print_problem, problem_summary
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Result
from stagecut.planner.io.files.plan_file import PlanFile, Provenance, provenance_of, to_tree
from stagecut.planner.report.progress import progress
from stagecut.planner.report.summary import SCHEMA, result_summary
from stagecut.planner.report.verdict import verdict
from stagecut.planner.solvers.registry import run, solver_for
from stagecut.planner.solvers.search.options import SolveOptions

EVEN = "even"


@click.command(
    "solve",
    epilog=example("plan solve --model gpt2-xl --cluster hetpipe-16 --global-batch 64 --micro-batch 1 -o plan.json"),
)
@problem_options
@solver_option
@search_options()
@click.option("-o", "--output", type=OutputFile(), metavar="FILE", help="Write the plan file.")
@picture_options
@click.option(
    "--convergence",
    type=OutputFile(),
    metavar="FILE",
    help="Write a chart of best time and bound over the search as .png or .svg.",
)
@click.option("--dry-run", is_flag=True, help="Check inputs and outputs, show the problem, search nothing.")
@click.option("--quiet", is_flag=True, help="Nothing on stderr but errors.")
@general_options
def command(
    choices: ProblemChoices,
    solver: str,
    options: SolveOptions,
    output: Path | None,
    pictures: Pictures,
    convergence: Path | None,
    *,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Find a plan, and prove how good it is.

    Progress goes to stderr, the plan to stdout. Ctrl-C keeps the best plan so far.
    """
    problem = choices.problem()
    pictures.check(output, convergence=convergence)
    if dry_run:
        _show_problem(problem, as_json=as_json)
        return
    context = click.get_current_context()
    name = solver_for(solver, problem, rows=options.rows)
    budget = TimeBudget(context, options.time_limit_s, pictures, compares=name != EVEN)
    provenance = provenance_of(problem, option_values(options, solver=name), seed=options.seed)
    with stop_requests() as cancelled:
        with progress(sys.stderr, quiet=quiet) as observer:
            result = run_cancellable(
                lambda: run(
                    problem,
                    name,
                    options,
                    observer=observer,
                    cancelled=cancelled,
                    spent_s=budget.spent_s,
                    answer_s=budget.answer_s,
                ),
                cancelled,
            )
        answer = Answer(
            problem=problem,
            result=result,
            played=None if result.plan is None else play(problem, result.plan),
            even_split_s=_even_split_s(problem, result, budget, cancelled),
            provenance=provenance,
        )
        tell_fault(result)
        try:
            written = answer.write(output, pictures, convergence)
        finally:
            answer.print_as_json() if as_json else answer.print_for_people()
    if not quiet:
        announce(written)
    context.exit(EXIT_CODES[result.status])


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a search found, ready to be told."""

    problem: Problem
    result: Result
    played: Played | None
    """None without a plan."""
    even_split_s: float | None
    """Iteration time of equal layer counts; infinite where they do not fit, None where it was not asked."""
    provenance: Provenance

    @property
    def plan_file(self) -> PlanFile | None:
        """What `-o` writes; None without a plan."""
        return None if self.played is None else plan_file_of(self.played, self.result, self.provenance)

    def write(self, output: Path | None, pictures: Pictures, convergence: Path | None) -> tuple[Path, ...]:
        """Write all files that were asked for; without a plan only the chart of the search."""
        written: tuple[Path, ...] = ()
        if self.played is not None and self.plan_file is not None:
            if output is not None:
                write_plan_file(output, self.plan_file, force=pictures.force)
                written = (output,)
            written += pictures.write(self.played.plan, self.played.timeline, title=self.problem.model.name)
        if convergence is not None:
            title = f"{self.problem.model.name} on {self.problem.cluster.name}"
            write_convergence(convergence, self.result, title=title, force=pictures.force)
            written += (convergence,)
        return written

    def print_for_people(self) -> None:
        """The plan, its numbers, and the verdict."""
        if self.played is None:
            print_shortages(self.problem, self.result)
        else:
            print_plan(self.played)
            print_numbers(self.played, self.result)
            click.echo()
        click.echo(verdict(self.result, even_split_s=self.even_split_s))
        if is_verbose():
            for what, how_many in self.result.counts:
                click.echo(f"{what}: {how_many}", err=True)

    def print_as_json(self) -> None:
        """Everything that is known."""
        played, content = self.played, self.plan_file
        plan = None if content is None else to_tree(content)["plan"]
        assert plan is None or isinstance(plan, Mapping)
        print_json(
            {
                **result_summary(self.result, plan=plan, provenance=provenance_tree(self.provenance)),
                "bubble_fraction": None if played is None else played.timeline.bubble_fraction,
                "samples_per_s": None if played is None else played.samples_per_s,
                "even_split_s": self.even_split_s,
                "verdict": verdict(self.result, even_split_s=self.even_split_s),
                "problem": problem_summary(self.problem),
            }
        )


def _even_split_s(problem: Problem, result: Result, budget: TimeBudget, cancelled: threading.Event) -> float | None:
    """Time of what people do by hand, for comparison; None where there is nothing to compare, or no time to do so."""
    if result.plan is None or not budget.compares or cancelled.is_set():
        return None
    seconds = budget.even_split_s(result.plan)
    if seconds <= 0:
        return None
    even = run(problem, EVEN, SolveOptions(time_limit_s=seconds), cancelled=cancelled)
    if even.stopped_by is not None:
        return None
    return math.inf if even.objective_s is None else even.objective_s


def _show_problem(problem: Problem, *, as_json: bool) -> None:
    if as_json:
        print_json({"schema": SCHEMA, "dry_run": True, "problem": problem_summary(problem)})
    else:
        print_problem(problem)
