"""On which devices to measure: options that both commands of `plan profile` have."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import click

from stagecut.planner.cli.options.groups import Command, option_group
from stagecut.planner.cli.options.types import MAX_COUNT, name
from stagecut.planner.core.errors import BadInputError

MAX_PROCESSES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChoices:
    """Devices as asked for."""

    processes: int
    threads: int | None
    device: str
    device_type: str | None
    repetitions: int

    def resolved(self) -> tuple[str, int]:
        """The device, `cpu` or `cuda`, and the threads of each process.

        Raises
        ------
        BadInputError
            If torch is missing, or there are too few GPUs.
        """
        require_torch("plan profile")
        from stagecut.executor.measure.devices import choose_device, threads_each

        processes = int(os.environ.get("LOCAL_WORLD_SIZE", self.processes))
        return choose_device(self.device, processes), self.threads or threads_each(processes)


def require_torch(command: str) -> None:
    """Say how to install torch where it is missing.

    Raises
    ------
    BadInputError
        If it is.
    """
    if find_spec("torch") is None:
        raise BadInputError(f"{command} needs torch: pip install 'stagecut[run]'")


def device_options(*, processes: int) -> Callable[[Command], Command]:
    """Give a command these options, as its argument `devices`.

    Parameters
    ----------
    processes
        Default number of them.
    """
    options = (
        click.option(
            "--processes",
            type=click.IntRange(1, MAX_PROCESSES),
            default=processes,
            show_default=True,
            metavar="N",
            help="Processes that measure at once, as the ranks of a training on this machine do.",
        ),
        click.option(
            "--threads",
            type=click.IntRange(1, MAX_COUNT),
            metavar="N",
            help="Of each process on a CPU.  [default: cores / processes]",
        ),
        click.option(
            "--device",
            type=click.Choice(["auto", "cpu", "cuda"]),
            default="auto",
            show_default=True,
            help="auto: GPUs where there is one for each process.",
        ),
        click.option(
            "--device-type",
            type=name,
            metavar="NAME",
            help="What the file calls these devices.  [default: their name]",
        ),
        click.option(
            "--repetitions",
            type=click.IntRange(1, MAX_COUNT),
            default=10,
            show_default=True,
            metavar="N",
            help="Least number of times that each thing is timed.",
        ),
    )
    return functools.partial(option_group, options=options, argument="devices", build=DeviceChoices)
