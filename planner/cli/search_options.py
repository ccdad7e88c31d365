"""Options that say how to search."""

import math

import click

from planner.cli.option_groups import Command, option_group
from planner.cli.option_types import share, time_limit
from planner.io.plan_file import OptionValue
from planner.solvers.options import RowChoice, SolveOptions

LARGEST_SEED = 2**31 - 1


def search_options(command: Command) -> Command:
    """Give a command limits and tolerances of a search, as its argument `options`."""
    options = (
        click.option(
            "--gap",
            type=share,
            metavar="SHARE",
            default="1e-4",
            show_default=True,
            help="Stop within it; 0.5% is read too.",
        ),
        click.option(
            "--time-limit",
            type=time_limit,
            default="60",
            metavar="SECONDS",
            help="For each solver; none or 0: no limit.  [default: 60]",
        ),
        click.option(
            "--rows",
            type=click.Choice([str(rows) for rows in RowChoice]),
            default=str(RowChoice.ALL),
            show_default=True,
            help="Families of bound rows to use.",
        ),
        click.option(
            "--seed", type=click.IntRange(0, LARGEST_SEED), default=0, show_default=True, help="Of the solver."
        ),
        click.option("--threads", type=click.IntRange(1, 1024), default=1, show_default=True, help="Of the solver."),
    )
    return option_group(command, options, argument="options", build=_solve_options)


def option_values(options: SolveOptions, *, solver: str) -> dict[str, OptionValue]:
    """The options as the provenance of a plan has them; the seed has a place of its own."""
    return {
        "solver": solver,
        "gap": options.gap,
        "time_limit_s": options.time_limit_s,
        "rows": str(options.rows),
        "threads": options.threads,
    }


def _solve_options(gap: float, time_limit: float, rows: str, seed: int, threads: int) -> SolveOptions:
    return SolveOptions(
        gap=gap,
        time_limit_s=None if time_limit == math.inf else time_limit,
        rows=RowChoice(rows),
        seed=seed,
        threads=threads,
    )
