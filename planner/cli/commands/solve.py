"""`plan solve`: find a plan and prove how good it is."""

import math
import sys
import threading

import click

from stagecut.planner.analysis.even_split import EVEN, even_split, no_slower_than, seconds_of
from stagecut.planner.analysis.prediction import Played, plan_file_of, play
from stagecut.planner.analysis.restriction import Unrestricted, without_framework
from stagecut.planner.analysis.stated_options import option_values
from stagecut.planner.cli.commands.waves.solve_waves import solve_through_waves
from stagecut.planner.cli.options.prices import PriceOptions
from stagecut.planner.cli.options.problem import ProblemChoices
from stagecut.planner.cli.options.search import SearchOptions, solver_option
from stagecut.planner.cli.options.solve import SolveOutputs, TimeBudget
from stagecut.planner.cli.options.time_notes import note_long_iteration
from stagecut.planner.cli.options.without_effect import note_unused_by
from stagecut.planner.cli.parameters.groups import example, general_options, is_verbose, option_group, quiet_option
from stagecut.planner.cli.process.cancellable import run_cancellable, stop_requests
from stagecut.planner.cli.process.notes import notes
from stagecut.planner.cli.process.sections import SectionCommand
from stagecut.planner.cli.process.writing import announce, print_json
from stagecut.planner.cli.views.answers import EXIT_CODES, print_fault, print_shortages
from stagecut.planner.cli.views.plan import print_memory, print_numbers, print_plan
from stagecut.planner.cli.views.problem import print_problem, problem_summary
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Result
from stagecut.planner.cost.time_basis import time_basis
from stagecut.planner.io.documents.records import tree_of
from stagecut.planner.io.files.plan_file import provenance_of, to_tree
from stagecut.planner.report.progress import progress
from stagecut.planner.report.summary import SCHEMA, result_summary, stage_summaries, throughput_summary
from stagecut.planner.report.verdict import cost_of_framework, verdict
from stagecut.planner.solvers.registry import run, solver_for
from stagecut.planner.solvers.search.options import SolveOptions


@click.command(
    "solve",
    cls=SectionCommand,
    epilog=example("plan solve --model gpt2-xl --cluster hetpipe-16 --global-batch 64 --micro-batch 1 -o plan.json"),
)
@option_group(ProblemChoices, argument="choices")
@option_group(PriceOptions, argument="prices")
@solver_option
@option_group(SearchOptions, argument="options")
@option_group(SolveOutputs, argument="outputs")
@click.option(
    "--compare-free/--no-compare-free",
    default=True,
    help="With --for, also search without it for up to 10 s of the time that is left, to say what it costs.",
)
@click.option("--dry-run", is_flag=True, help="Check inputs and outputs and show the problem, but do not search.")
@quiet_option
@general_options
def command(
    choices: ProblemChoices,
    prices: PriceOptions,
    solver: str,
    options: SolveOptions,
    outputs: SolveOutputs,
    *,
    compare_free: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Find a plan and prove how good it is.

    Progress goes to stderr, the plan to stdout. Ctrl-C stops the search and keeps the best plan so far.
    """
    problem = prices.priced(choices.problem())
    if problem.job.waves is not None:
        solve_through_waves(problem, options, outputs, dry_run=dry_run, quiet=quiet, as_json=as_json)
        return
    outputs.check()
    if dry_run:
        if as_json:
            print_json({"schema": SCHEMA, "dry_run": True, "problem": problem_summary(problem), "notes": notes()})
        else:
            print_problem(problem)
        return
    context = click.get_current_context()
    name = solver_for(solver, problem, rows=options.rows)
    note_unused_by((name,))
    budget = TimeBudget(context, options.time_limit_s or math.inf, outputs, compares=name != EVEN)
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
        even = _even_split_beside(problem, result, budget, cancelled)
        even_s = seconds_of(even)
        if problem.job.sharding is None:
            result = no_slower_than(even, result, gap=options.gap)
        played = None if result.plan is None else play(problem, result.plan)
        provenance = provenance_of(problem, option_values(options, solver=name), seed=options.seed)
        plan_file = None if played is None else plan_file_of(played, result, provenance)
        basis = time_basis(problem)
        note_long_iteration(problem, result.objective_s)
        sentence = verdict(result, even_split_s=even_s, basis=basis)
        free = _without_framework(problem, result, options, budget, cancelled) if compare_free else None
        print_fault(result)
        try:
            written = outputs.write_all(problem, result, played=played, plan_file=plan_file, even_split_s=even_s)
        finally:
            if as_json:
                plan = None if plan_file is None else to_tree(plan_file)["plan"]
                summary = result_summary(result, plan=plan, provenance=tree_of(provenance))
                more = {
                    "bubble_fraction": None if played is None else played.timeline.bubble_fraction,
                    "stages": None if played is None else stage_summaries(played),
                    **throughput_summary(None if played is None else played.throughput),
                    "even_split_s": even_s,
                    "without_framework": None if free is None else tree_of(free),
                    "verdict": sentence,
                    "times_rest_on": str(basis.basis),
                    "problem": problem_summary(problem),
                    "notes": notes(),
                }
                print_json({**summary, **more})
            else:
                _print_for_people(problem, result, played, sentence)
                if free is not None and result.objective_s is not None and problem.rules is not None:
                    seconds = result.objective_s, problem.rules.name, free.objective_s, free.bound_s
                    click.echo(cost_of_framework(*seconds))
    if not quiet:
        announce(written)
    context.exit(EXIT_CODES[result.status])


def _print_for_people(problem: Problem, result: Result, played: Played | None, sentence: str) -> None:
    if played is None:
        print_shortages(problem, result)
    else:
        print_plan(played)
        if is_verbose():
            print_memory(played)
        print_numbers(played, result)
        click.echo()
    click.echo(sentence)
    if is_verbose():
        for what, how_many in result.counts:
            click.echo(f"{what}: {how_many}", err=True)


def _without_framework(
    problem: Problem, result: Result, options: SolveOptions, budget: TimeBudget, cancelled: threading.Event
) -> Unrestricted | None:
    """What plans take without the framework; None without one or without a plan, or if no time was left."""
    if result.plan is None or problem.rules is None or cancelled.is_set():
        return None
    seconds = budget.left_s(result.plan)
    return None if seconds <= 0 else without_framework(problem, options, seconds=seconds, cancelled=cancelled)


def _even_split_beside(
    problem: Problem, result: Result, budget: TimeBudget, cancelled: threading.Event
) -> Result | None:
    """The even split; None if a plan is not compared with it, or no time was left."""
    if result.plan is None or not problem.variants or not budget.compares or cancelled.is_set():
        return None
    seconds = budget.even_split_s(result.plan)
    if seconds <= 0:
        return None
    return even_split(problem, time_limit_s=seconds, cancelled=cancelled)
