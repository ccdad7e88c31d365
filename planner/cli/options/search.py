"""Options that say how to search."""

from dataclasses import dataclass
from typing import ClassVar

import click

from stagecut.planner.analysis.stated_options import LARGEST_SEED, MOST_THREADS
from stagecut.planner.cli.parameters.groups import member_option, option
from stagecut.planner.cli.parameters.types import fraction, memory_size, time_limit
from stagecut.planner.cli.process.sections import SectionOption
from stagecut.planner.core.numerics.cores import usable_cores
from stagecut.planner.solvers.registry import AUTO, SOLVERS
from stagecut.planner.solvers.search.options import RowChoice, SolveOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions(SolveOptions):
    """Limits and tolerances of a search, from the command line."""

    HEADING: ClassVar[str] = "How to search"

    gap: float = option(
        "--gap",
        type=fraction,
        metavar="SHARE",
        default="1e-4",
        help="Relative gap at which to stop, such as 0.005 or 0.5%.",
    )
    time_limit_s: float | None = option(
        "--time-limit",
        type=time_limit,
        default="60",
        metavar="SECONDS",
        help="Time limit of each search in seconds; none or 0 for no limit.",
    )
    memory_limit_bytes: float | None = option(
        "--memory-limit",
        type=memory_size,
        default="none",
        metavar="SIZE",
        help="Stop once the process uses more memory than this, such as 4GiB or 512MB; none for no limit.",
    )
    rows: RowChoice = member_option(
        "--rows", members=RowChoice, default=str(RowChoice.ALL), help="Families of bound rows to use."
    )
    seed: int = option("--seed", type=click.IntRange(0, LARGEST_SEED), default=0, help="Random seed.")
    jobs: int = option(
        "--jobs",
        type=click.IntRange(1, MOST_THREADS),
        default=usable_cores,
        show_default="all cores",
        help="Number of proofs at once.",
    )
    threads: int = option("--threads", type=click.IntRange(1, MOST_THREADS), default=1, help="Number of HiGHS threads.")


solver_option = click.option(
    "--solver",
    cls=SectionOption,
    section=SearchOptions.HEADING,
    type=click.Choice([AUTO, *SOLVERS]),
    default=AUTO,
    show_default=True,
    help="auto: milp, or dp with --rows shared where that is faster; the others are for comparison.",
)
