"""How `plan shard` searches, and what it writes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from stagecut.planner.analysis.stated_options import MOST_THREADS
from stagecut.planner.cli.options.outputs import Outputs
from stagecut.planner.cli.options.search import SearchOptions
from stagecut.planner.cli.parameters.files import output_option
from stagecut.planner.cli.parameters.groups import option
from stagecut.planner.cli.process.writing import announce, print_json
from stagecut.planner.core.numerics.cores import usable_cores
from stagecut.planner.io.documents.canonical import Tree, format_json
from stagecut.planner.solvers.search.options import RowChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOptions(SearchOptions):
    """Limits and tolerances of a search on a choice graph."""

    rows: RowChoice = RowChoice.ALL
    """Of no use here, and no option."""
    jobs: int = 1
    """Likewise."""
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

    def give(
        self,
        answer: Tree,
        *,
        known: bool,
        in_words: Callable[[], None],
        quiet: bool,
        as_json: bool,
    ) -> None:
        """Write the answer if one is known, and print it, even if it cannot be written."""
        try:
            if self.output is not None and known:
                self.write(self.output, format_json(answer))
        finally:
            if as_json:
                print_json(answer)
            else:
                in_words()
        if self.output is not None and known and not quiet:
            announce([self.output])
