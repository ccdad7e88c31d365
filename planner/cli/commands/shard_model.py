"""`plan shard --model`: divide a model over the devices of a cluster."""

import sys
from typing import TYPE_CHECKING

import click

from stagecut.planner.cli.options.shard import AnswerFile, ShardOptions
from stagecut.planner.cli.options.shard_model import ModelToShard
from stagecut.planner.cli.process.cancellable import run_cancellable, stop_requests
from stagecut.planner.cli.process.lazy_group import seconds_since_start
from stagecut.planner.cli.views.answers import EXIT_CODES, print_fault
from stagecut.planner.report.labels import seconds_label
from stagecut.planner.report.progress import progress
from stagecut.planner.report.shardings import (
    layer_table,
    memory_sentence,
    scheme_table,
    sharding_sentence,
    sharding_tree,
)
from stagecut.planner.report.summary import SCHEMA
from stagecut.planner.report.text_table import print_table

if TYPE_CHECKING:
    from stagecut.planner.sharding_search.scheme_result import Scheme, SchemeResult


def shard_model(
    context: click.Context,
    to_shard: ModelToShard,
    options: ShardOptions,
    output: AnswerFile,
    *,
    quiet: bool,
    as_json: bool,
) -> int:
    """Search, print and write the answer; the exit code."""
    to_shard.check()
    output.check()
    with stop_requests() as cancelled:
        cases_of, sizes = to_shard.cases()
        with progress(sys.stderr, quiet=quiet, words=_Best().words) as observer:

            def work() -> "SchemeResult":
                from stagecut.planner.sharding_search.scheme_search import search_sizes

                return search_sizes(
                    cases_of,
                    sizes,
                    to_shard.method,
                    options,
                    tied=not to_shard.untied,
                    observer=observer,
                    cancelled=cancelled,
                    spent_s=seconds_since_start(context),
                )

            result = run_cancellable(work, cancelled)
        print_fault(result)
        tree = {"schema": SCHEMA, **sharding_tree(result)}
        known = result.best is not None
        output.give(tree, known=known, in_words=lambda: _print(result), quiet=quiet, as_json=as_json)
    return EXIT_CODES[result.status]


def _print(result: "SchemeResult") -> None:
    if result.schemes:
        print_table(scheme_table(result))
        click.echo()
    if result.best is not None:
        print_table(layer_table(result.best))
        click.echo(f"\n{memory_sentence(result.best)}")
    click.echo(sharding_sentence(result))


class _Best:
    """The fastest scheme that was told."""

    def __init__(self) -> None:
        self._best_s: float | None = None

    def words(self, scheme: "Scheme | None") -> str:
        """Its time."""
        if scheme is not None and scheme.fits:
            self._best_s = min(scheme.costs.iteration_s, self._best_s or scheme.costs.iteration_s)
        return f"best {seconds_label(self._best_s)}"
