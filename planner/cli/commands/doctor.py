"""`plan doctor`: print versions, processor cores and, if asked, devices."""

import dataclasses
import os
import platform
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from stagecut import __version__
from stagecut.planner.cli.parameters.groups import example, general_options
from stagecut.planner.cli.process.writing import print_json
from stagecut.planner.core.numerics.cores import usable_cores
from stagecut.planner.core.units import format_bytes
from stagecut.planner.report.summary import SCHEMA

if TYPE_CHECKING:
    from stagecut.executor.machine.devices import Machine

NEEDED = ("numpy", "highspy", "pulp", "click", "pydantic", "rich", "pyyaml")
OPTIONAL = {
    "matplotlib": "Gantt charts, pip install 'stagecut[plot]'",
    "torch": "plan run, pip install 'stagecut[run]'",
}


@click.command("doctor", epilog=example("plan doctor", "plan doctor --devices"))
@click.option("--devices", is_flag=True, help="List the devices that torch can train on, and the network interfaces.")
@general_options
def command(*, devices: bool, as_json: bool) -> None:
    """Print versions and processor cores, to include in a bug report.

    Exits with code 1 if a required library is missing.
    """
    machine = None
    if devices and find_spec("torch") is not None:
        from stagecut.executor.machine.devices import this_machine

        machine = this_machine()
    versions: dict[str, str | None] = dict.fromkeys((*NEEDED, *OPTIONAL))
    for name in versions:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    cores = {"machine": os.cpu_count(), "usable": usable_cores()}
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "stagecut": __version__,
                "python": platform.python_version(),
                "platform": platform.platform(),
                "cores": cores,
                "libraries": versions,
                "devices": None if machine is None else dataclasses.asdict(machine),
            }
        )
    else:
        _print(versions, cores)
        if devices:
            click.echo()
            _print_machine(machine)
    click.get_current_context().exit(int(any(versions[name] is None for name in NEEDED)))


def _print(versions: dict[str, str | None], cores: dict[str, int | None]) -> None:
    click.echo(f"stagecut    {__version__}")
    click.echo(f"python      {platform.python_version()} on {platform.platform()}")
    click.echo(f"cores       {cores['machine']}, of which {cores['usable']} are usable")
    for name, version in versions.items():
        use = f" (optional: {OPTIONAL[name]})" if name in OPTIONAL else ""
        click.echo(f"{name:<11} {version or 'not installed' + use}")


def _print_machine(machine: "Machine | None") -> None:
    if machine is None:
        click.echo("devices     unknown: finding them needs torch, which is not installed; pip install 'stagecut[run]'")
        return
    click.echo(
        f"cpu         {machine.cores} cores, {machine.threads} torch threads, {format_bytes(machine.memory_bytes)}"
    )
    for device in machine.cuda_devices:
        capability = ".".join(map(str, device.capability))
        figures = f"{format_bytes(device.memory_bytes)}, capability {capability}"
        mode = f"{device.num_multiprocessors} multiprocessors, mode {device.compute_mode}"
        click.echo(f"cuda:{device.index:<6} {device.name}, {figures}, {mode}; device type {device.device_type}")
    if not machine.cuda_devices:
        click.echo("cuda        no device")
    click.echo(f"backends    {', '.join(machine.backends) or 'none: torch was built without torch.distributed'}")
    interfaces = ", ".join(f"{each.name} ({each.state})" for each in machine.interfaces)
    click.echo(f"interfaces  {interfaces or 'none'}; set GLOO_SOCKET_IFNAME to choose one for gloo")
