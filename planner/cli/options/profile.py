"""Options of `plan profile`: which layers and devices to measure, and how."""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar

import click

from stagecut.planner.cli.parameters.files import ModuleFunction, NameOrFile
from stagecut.planner.cli.parameters.groups import member_option, option
from stagecut.planner.cli.parameters.types import COUNT, counts, layer_range, plain_name, shape, time_limit
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.documents.fields import MAX_COUNT

MAX_PROCESSES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChoices:
    """Devices to measure on; options of both commands."""

    HEADING: ClassVar[str] = "Devices"

    processes: int = option(
        "--processes",
        type=click.IntRange(1, MAX_PROCESSES),
        default=1,
        help="Processes that measure at the same time, like the ranks of a training run on this machine.",
    )
    threads: int | None = option("--threads", type=COUNT, help="CPU threads per process.  [default: cores / processes]")
    device: str = option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        help="Where to measure; auto: on GPUs if there is one per process, else on the CPU.",
    )
    device_type: str | None = option(
        "--device-type",
        type=plain_name,
        metavar="NAME",
        help="What to call these devices in the file.  [default: the device's own name]",
    )
    repetitions: int = option(
        "--repetitions", type=COUNT, default=10, help="Minimum number of timings per measurement."
    )

    def resolved(self) -> tuple[str, int]:
        """The device, `cpu` or `cuda`, and the threads of each process.

        Raises a BadInputError if torch is missing, or there are too few GPUs.
        """
        require_torch("plan profile")
        from stagecut.executor.machine.devices import choose_device, threads_each

        processes = int(os.environ.get("LOCAL_WORLD_SIZE", self.processes))
        return choose_device(self.device, processes), self.threads or threads_each(processes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoices:
    """Layers to measure and how to time them; options of `plan profile model`."""

    HEADING: ClassVar[str] = "What to measure"

    layers: str | None = option(
        "--layers",
        type=ModuleFunction(),
        metavar="MODULE:FUNCTION",
        help="Function that returns a ModuleChain or a list of modules.",
    )
    sample_shape: tuple[int, ...] | None = option(
        "--sample-shape", type=shape, metavar="3,32,32", help="Input shape of one sample, for a list of modules."
    )
    sequence_length: int | None = option(
        "--sequence-length", type=COUNT, metavar="TOKENS", help="Tokens per sample.  [default: the model's]"
    )
    micro_batch: tuple[int, ...] = option(
        "--micro-batch", type=counts, default="1,2,4,8", metavar="LIST", help="Micro-batch sizes to time, in samples."
    )
    layer_range: tuple[int, int] | None = option(
        "--layer-range", type=layer_range, metavar="FIRST-LAST", help="Time only these layers, as one stage."
    )
    precision: Precision | None = member_option(
        "--precision",
        members=Precision,
        help="Number format; fp16 and bf16 through autocast.  [default: fp32 on CPUs, bf16 on GPUs]",
    )
    in_flight: int = option(
        "--in-flight",
        type=COUNT,
        default=3,
        help="Micro-batches whose forward is done and whose backward is pending at any time.",
    )
    warmup: int = option("--warmup", type=click.IntRange(0, MAX_COUNT), default=3, help="Unmeasured warm-up rounds.")
    time_limit: float | None = option(
        "--time-limit",
        type=time_limit,
        default="none",
        metavar="SECONDS",
        help="Leave out micro-batch sizes not reached within this many seconds; none for no limit.",
    )
    add_to: str | None = option(
        "--add-to", type=NameOrFile(), metavar="FILE", help="Existing profile of these layers to add the times to."
    )


def require_torch(command: str) -> None:
    """Raise a BadInputError that says how to install torch if it is missing."""
    if find_spec("torch") is None:
        raise BadInputError(f"{command} needs torch: pip install 'stagecut[run]'")
