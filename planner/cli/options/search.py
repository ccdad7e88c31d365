"""Options that say how to search."""

import math
from collections.abc import Callable

import click

from stagecut.planner.cli.options.groups import Command, option_group
from stagecut.planner.cli.options.types import memory_size, share, time_limit
from stagecut.planner.io.files.plan_file import OptionValue
from stagecut.planner.solvers.registry import AUTO, SOLVERS
from stagecut.planner.solvers.search.options import RowChoice, SolveOptions

LARGEST_SEED = 2**31 - 1
MOST_THREADS = 1024


def solver_option(command: Command) -> Command:
    """Give a command --solver, as its argument `solver`."""
    option = click.option(
        "--solver",
        type=click.Choice([AUTO, *SOLVERS]),
        default=AUTO,
        show_default=True,
        help="auto: milp, or dp with --rows shared where that is quicker; the others are for comparison.",
    )
    return option(command)


def search_options(*, gap: str = "1e-4", seconds: str = "60", each: str = "solver") -> Callable[[Command], Command]:
    """Give a command limits and tolerances of a search, as its argument `options`.

    Parameters
    ----------
    gap, seconds
        Defaults.
    each
        What the command does one after another, each with the whole time limit.
    """
    options = (
        click.option(
            "--gap",
            type=share,
            metavar="SHARE",
            default=gap,
            show_default=True,
            help="Stop within it; 0.5% is read too.",
        ),
        click.option(
            "--time-limit",
            type=time_limit,
            default=seconds,
            metavar="SECONDS",
            help=f"For each {each}; none or 0: no limit.  [default: {seconds}]",
        ),
        click.option(
            "--memory-limit",
            type=memory_size,
            default="none",
            metavar="SIZE",
            help="Stop once the program holds more, as 4GiB or 512MB; none: no limit.  [default: none]",
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
        click.option(
            "--threads", type=click.IntRange(1, MOST_THREADS), default=1, show_default=True, help="Of the solver."
        ),
    )
    return lambda command: option_group(command, options, argument="options", build=_solve_options)


def option_values(options: SolveOptions, *, solver: str) -> dict[str, OptionValue]:
    """The options as the provenance of a plan has them; the seed has a place of its own."""
    return {
        "solver": solver,
        "gap": options.gap,
        "time_limit_s": options.time_limit_s,
        "memory_limit_bytes": options.memory_limit_bytes,
        "rows": str(options.rows),
        "threads": options.threads,
    }


def _solve_options(
    gap: float, time_limit: float, memory_limit: float, rows: str, seed: int, threads: int
) -> SolveOptions:
    return SolveOptions(
        gap=gap,
        time_limit_s=None if time_limit == math.inf else time_limit,
        memory_limit_bytes=None if memory_limit == math.inf else memory_limit,
        rows=RowChoice(rows),
        seed=seed,
        threads=threads,
    )
