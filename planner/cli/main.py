"""The command `plan`: its subcommands by name, each imported only when it is used."""

import click

from stagecut import __version__
from stagecut.planner.cli.parameters.groups import example
from stagecut.planner.cli.process.lazy_group import LazyGroup

SUMMARIES = {
    "solve": "Find a plan and prove how good it is.",
    "compare": "Run several solvers on one problem.",
    "simulate": "Simulate one iteration of a plan file.",
    "estimate": "Say whether a layout fits in memory and how fast it is.",
    "explain": "Show what limits a plan, and what more hardware would bring.",
    "report": "Show all about a plan on one offline page for a browser.",
    "check": "Recompute every number of a plan file.",
    "run": "Run a plan on torch and measure it.",
    "history": "Show how accurate predictions were, run by run.",
    "calibrate": "Correct the times of a profile from recorded runs.",
    "profile": "Measure a model, or devices and links, for `plan solve`.",
    "convert": "Read another planner's profile, or write a plan for a training framework.",
    "shard": "Divide a model over devices, or solve a choice graph, and prove how good the answer is.",
    "models": "List the models of the catalogue or show one.",
    "clusters": "List the clusters of the catalogue, show one, or write a new one.",
    "schema": "Print the JSON Schema of a kind of file.",
    "doctor": "Print versions and processor cores.",
}
"""First sentence of each command's help, in the order of the help; each command is the module of its name."""


@click.group(
    cls=LazyGroup,
    package="stagecut.planner.cli.commands",
    summaries=SUMMARIES,
    context_settings={"help_option_names": ["-h", "--help"]},
    name="plan",
    epilog=example("plan solve --model gpt2-xl --cluster hetpipe-16 --global-batch 64"),
)
@click.version_option(__version__, "-V", "--version", prog_name="stagecut")
def main() -> None:
    """Plan pipeline-parallel training on the GPU servers at hand.

    Answers go to stdout, everything else to stderr. Every command takes --json.

    Exit codes: 0 success, 1 internal fault, 2 wrong usage, 3 bad input, 4 no plan fits, or a given layout does not,
    5 no plan found within the limits, 6 difference found by check, compare or run --check,
    130 interrupted, 141 stdout was closed before the answer was complete.
    """
