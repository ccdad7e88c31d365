"""How `plan shard` searches, and what it writes."""

from dataclasses import dataclass
from pathlib import Path

import click

from stagecut.planner.analysis.stated_options import MOST_THREADS
from stagecut.planner.cli.options.outputs import Outputs
from stagecut.planner.cli.options.search import SearchOptions
from stagecut.planner.cli.parameters.files import output_option
from stagecut.planner.cli.parameters.groups import option
from stagecut.planner.core.cores import usable_cores
from stagecut.planner.core.cores import usable_cores
from stagecut.planner.solvers.search.options import RowChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOptions(SearchOptions):
    """Limits and tolerances of a search on a choice graph."""

    rows: RowChoice = RowChoice.ALL
    jobs: int = 1
    """Of no use here, and no options."""
    threads: int = option(
        "--threads",
        type=click.IntRange(1, MOST_THREADS),
        default=usable_cores,
        show_default="all cores",
        help="Number of threads.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFile(Outputs):
    """The file that the answer is written to."""

    output: Path | None = output_option("-o", "--output", text="Write the answer to this file.")
