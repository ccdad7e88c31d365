"""The command `plan`: its subcommands by name, each imported when it is used."""

if __name__ == "__main__":  # signals are to be handled before the imports below
    from planner.cli import entry

    entry.main()

import click

import planner
from planner.cli.example import example
from planner.cli.lazy_group import LazyCommand, LazyGroup

COMMANDS = {
    "solve": LazyCommand(module="planner.cli.solve", summary="Find a plan, and prove how good it is."),
    "compare": LazyCommand(module="planner.cli.compare", summary="Run several solvers on one problem."),
    "simulate": LazyCommand(module="planner.cli.simulate", summary="Play one iteration of a plan file."),
    "explain": LazyCommand(
        module="planner.cli.explain", summary="Say what binds in a plan, and what one more unit would bring."
    ),
    "check": LazyCommand(module="planner.cli.check", summary="Derive every number of a plan file again."),
    "run": LazyCommand(module="planner.cli.run", summary="Train by a plan, and measure."),
    "history": LazyCommand(module="planner.cli.history", summary="Show how good predictions were, run by run."),
    "calibrate": LazyCommand(
        module="planner.cli.calibrate", summary="Correct the times of a profile from recorded runs."
    ),
    "profile": LazyCommand(
        module="planner.cli.profile", summary="Measure a model, or devices and links, for `plan solve`."
    ),
    "convert": LazyCommand(
        module="planner.cli.convert",
        summary="Read another planner's profile, or write a plan for a training framework.",
    ),
    "models": LazyCommand(module="planner.cli.models", summary="List the models of the catalogue, or show one."),
    "clusters": LazyCommand(module="planner.cli.clusters", summary="List the clusters of the catalogue, or show one."),
    "schema": LazyCommand(module="planner.cli.schema", summary="Print the JSON Schema of a kind of file."),
    "doctor": LazyCommand(module="planner.cli.doctor", summary="Print versions and processor cores."),
}
"""In the order of the help."""


@click.group(
    cls=LazyGroup,
    commands_by_name=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    name="plan",
    epilog=example("plan solve --model gpt2-xl --cluster hetpipe-16 --global-batch 64"),
)
@click.version_option(planner.__version__, prog_name="stagecut")
def main() -> None:
    """Plan pipeline-parallel training on the GPU servers at hand.

    The answer goes to stdout, everything else to stderr; every command takes --json.

    Exit codes: 0 done, 1 internal fault, 2 usage, 3 bad input, 4 no plan fits,
    5 no plan found in the time given, 6 check or compare found a difference,
    130 interrupted, 141 nobody read the answer to its end.
    """
