"""`plan shard`: divide a model over devices, or solve a choice graph."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stagecut.planner.choice_graphs.answers import answer_tree, differences, read_answer
from stagecut.planner.choice_graphs.result import ChoicePoint, ChoiceResult
from stagecut.planner.cli.commands.shard_model import shard_model
from stagecut.planner.cli.options.shard import AnswerFile, ShardOptions
from stagecut.planner.cli.options.shard_model import ModelToShard
from stagecut.planner.cli.parameters.files import InputFile
from stagecut.planner.cli.parameters.groups import example, general_options, option_group, quiet_option
from stagecut.planner.cli.process.cancellable import run_cancellable, stop_requests
from stagecut.planner.cli.process.lazy_group import seconds_since_start
from stagecut.planner.cli.process.sections import SectionCommand
from stagecut.planner.cli.process.writing import print_json
from stagecut.planner.cli.views.answers import DIFFERS, EXIT_CODES, print_fault
from stagecut.planner.core.messages.visible import visible
from stagecut.planner.core.result import Status, relative_gap
from stagecut.planner.report.labels import UNKNOWN, percent_label
from stagecut.planner.report.progress import progress
from stagecut.planner.report.summary import SCHEMA
from stagecut.planner.report.verdict import ENDS, quality

if TYPE_CHECKING:
    from stagecut.planner.choice_graphs.graph import ChoiceGraph


@click.command(
    "shard",
    cls=SectionCommand,
    epilog=example(
        "plan shard --model gpt2-xl --cluster dgx-a100-16 --global-batch 64",
        "plan shard --choice-graph model.json.gz --time-limit 60 -o answer.json",
        "plan shard --choice-graph model.json.gz --check answer.json",
    ),
)
@click.option(
    "--choice-graph",
    "path",
    type=InputFile(),
    metavar="FILE",
    help="Graph of options and pair costs in the format of the ASPLOS 2025 contest, plain or gzipped.",
)
@click.option(
    "--check", "answer", type=InputFile(), metavar="ANSWER", help="Recompute an answer's numbers instead of searching."
)
@option_group(ModelToShard, argument="to_shard")
@option_group(ShardOptions, argument="options")
@option_group(AnswerFile, argument="output")
@quiet_option
@general_options
@click.pass_context
def command(
    context: click.Context,
    path: Path | None,
    answer: Path | None,
    to_shard: ModelToShard,
    options: ShardOptions,
    output: AnswerFile,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Divide a model over devices operator by operator, or choose an option for every node of a choice graph.

    A model is divided over all devices of a cluster, without pipeline: samples, heads, widths, tokens, experts,
    weights. Of a choice graph, the cost of options and of pairs of options on edges is minimised, within a limit on the
    usage of the nodes alive at any moment. Progress goes to stderr, the answer to stdout. Ctrl-C stops the search and
    keeps the best answer so far.
    """
    if path is None:
        if answer is not None:
            raise click.UsageError("'--check' needs a '--choice-graph'.")
        context.exit(shard_model(context, to_shard, options, output, quiet=quiet, as_json=as_json))
    to_shard.refuse()
    if answer is not None:
        context.exit(_check(path, answer, as_json=as_json))
    output.check()
    with stop_requests() as cancelled:
        graph = run_cancellable(lambda: _read(path), cancelled)
        with progress(sys.stderr, quiet=quiet, words=cost_words) as observer:

            def work() -> ChoiceResult:
                from stagecut.planner.choice_graphs.solving.solve import solve

                return solve(
                    graph, options, observer=observer, cancelled=cancelled, spent_s=seconds_since_start(context)
                )

            result = run_cancellable(work, cancelled)
        print_fault(result)
        tree = {"schema": SCHEMA, **answer_tree(result)}
        known = result.choices is not None
        output.give(tree, known=known, in_words=lambda: click.echo(sentence(result)), quiet=quiet, as_json=as_json)
    context.exit(EXIT_CODES[result.status])


def _read(path: Path) -> "ChoiceGraph":
    from stagecut.planner.choice_graphs.reading import read_choice_graph

    return read_choice_graph(path)


def cost_words(point: ChoicePoint | None) -> str:
    """Best cost, bound and gap."""
    best, bound = (None, None) if point is None else (point.objective, point.bound)
    return f"best {_label(best)}  bound {_label(bound)}  gap {percent_label(relative_gap(best, bound))}"


def sentence(result: ChoiceResult) -> str:
    """What a search found and what it proved."""
    head = "interrupted: " if result.status is Status.INTERRUPTED else ""
    end = ENDS[result.stopped_by]
    if result.objective is not None:
        return f"{head}cost {_label(result.objective)}, bound {_label(result.bound)}, {quality(result)}{end}"
    if result.status is Status.INFEASIBLE:
        return f"infeasible: {result.overflow}"
    return f"{head}no choice {f'yet{end}' if end or head else 'found'}, and no proof that there is none"


def _label(cost: int | None) -> str:
    return UNKNOWN if cost is None else f"{cost:,}"


def _check(path: Path, answer: Path, *, as_json: bool) -> int:
    from stagecut.planner.choice_graphs.evaluation import evaluate

    choices, objective, bound = read_answer(answer)
    found = evaluate(_read(path), choices)
    wrong = [*found.faults, *([] if found.faults else differences(cost=found.cost, objective=objective, bound=bound))]
    if as_json:
        tree = {"objective": found.cost, "peak_usage": found.peak_usage, "moment": found.moment, "differences": wrong}
        print_json({"schema": SCHEMA, "agrees": not wrong, **tree})
    else:
        for line in wrong:
            click.echo(f"{visible(answer)}: {visible(line)}")
        if not wrong:
            at = "" if found.moment is None else f" at moment {found.moment}"
            click.echo(f"{visible(answer)}: legal, cost {found.cost:,}, largest usage {found.peak_usage:,}{at}")
    return DIFFERS if wrong else 0
