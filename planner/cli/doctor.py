"""`plan doctor`: print versions and processor cores."""

import os
import platform
from importlib import metadata

import click

import planner
from planner.cli.example import example
from planner.cli.option_groups import general_options
from planner.cli.outputs import print_json
from planner.report.summary import SCHEMA

NEEDED = ("numpy", "highspy", "pulp", "click", "pydantic", "rich", "pyyaml")
OPTIONAL = {
    "matplotlib": "Gantt charts, pip install 'stagecut[plot]'",
    "torch": "plan run, pip install 'stagecut[run]'",
}


@click.command("doctor", epilog=example("plan doctor"))
@general_options
def command(*, as_json: bool) -> None:
    """Print versions and processor cores, to go with a question or a report of a fault.

    Exit code 1 if a library is missing that stagecut cannot do without.
    """
    versions = {name: _version(name) for name in (*NEEDED, *OPTIONAL)}
    cores = {"machine": os.cpu_count(), "usable": _usable_cores()}
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "stagecut": planner.__version__,
                "python": platform.python_version(),
                "platform": platform.platform(),
                "cores": cores,
                "libraries": versions,
            }
        )
    else:
        _print(versions, cores)
    click.get_current_context().exit(int(any(versions[name] is None for name in NEEDED)))


def _print(versions: dict[str, str | None], cores: dict[str, int | None]) -> None:
    click.echo(f"stagecut    {planner.__version__}")
    click.echo(f"python      {platform.python_version()} on {platform.platform()}")
    click.echo(f"cores       {cores['machine']}, of which {cores['usable']} may be used")
    for name, version in versions.items():
        use = f" (optional: {OPTIONAL[name]})" if name in OPTIONAL else ""
        click.echo(f"{name:<11} {version or 'not installed' + use}")


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def _usable_cores() -> int | None:
    """Cores this process may run on; all of them where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
