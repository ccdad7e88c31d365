"""What to measure of a model, and where to write it: options of `plan profile`."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from stagecut.planner.cli.options.files import ModuleFunction, NameOrFile, OutputFile
from stagecut.planner.cli.options.groups import Command, option_group
from stagecut.planner.cli.options.outputs import announce, write_file
from stagecut.planner.cli.options.types import MAX_COUNT, counts, time_limit
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.documents.canonical import Tree
from stagecut.planner.io.documents.readable import readable_text
from stagecut.planner.io.documents.tree import Document
from stagecut.planner.io.documents.write import check_writable


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementFile:
    """The file that a measurement is written to."""

    output: Path
    force: bool
    quiet: bool

    def check(self) -> None:
        """Complain now if it cannot be written later.

        Raises
        ------
        OutputError
            If so.
        """
        check_writable(self.output, force=self.force)

    def write(self, tree: Tree, read: Callable[[Document], object]) -> None:
        """Write it such that `read` takes it, and say so."""
        write_file(self.output, readable_text(tree, read, path=self.output), force=self.force)
        if not self.quiet:
            announce([self.output])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoices:
    """Layers and how to time them, as asked for."""

    layers: str | None
    sample_shape: tuple[int, ...] | None
    sequence_length: int | None
    micro_batch: tuple[int, ...]
    layer_range: tuple[int, int] | None
    precision: Precision | None
    in_flight: int
    warmup: int
    add_to: str | None
    time_limit: float


def output_options(*, content: str) -> Callable[[Command], Command]:
    """Give a command -o, --force and --quiet, as its argument `outputs`."""
    options = (
        click.option("-o", "--output", type=OutputFile(), required=True, metavar="FILE", help=content),
        click.option("--force", is_flag=True, help="Overwrite a file that exists."),
        click.option("--quiet", is_flag=True, help="Nothing on stderr but errors."),
    )
    return functools.partial(option_group, options=options, argument="outputs", build=MeasurementFile)


def model_options(command: Command) -> Command:
    """Give a command these options, as its argument `choices`."""
    at_least_one = click.IntRange(1, MAX_COUNT)
    options = (
        click.option(
            "--layers",
            type=ModuleFunction(),
            metavar="MODULE:FUNCTION",
            help="Function that gives a ModuleChain or a list of modules.",
        ),
        click.option("--sample-shape", type=_shape, metavar="3,32,32", help="Of one input of a list of modules."),
        click.option("--sequence-length", type=at_least_one, metavar="TOKENS", help="Tokens of one sample."),
        click.option(
            "--micro-batch", type=counts, default="1,2,4,8", show_default=True, metavar="LIST", help="Sizes in samples."
        ),
        click.option("--layer-range", type=_range, metavar="FIRST-LAST", help="Time these only, as one stage."),
        click.option(
            "--precision",
            type=click.Choice([str(precision) for precision in Precision]),
            callback=_precision,
            help="fp16 and bf16 by autocast.  [default: fp32 on a CPU, bf16 on a GPU]",
        ),
        click.option(
            "--in-flight",
            type=at_least_one,
            default=3,
            show_default=True,
            metavar="N",
            help="Micro-batches between forward and backward at any time.",
        ),
        click.option(
            "--warmup",
            type=click.IntRange(0, MAX_COUNT),
            default=3,
            show_default=True,
            metavar="N",
            help="Rounds that do not count.",
        ),
        click.option(
            "--time-limit",
            type=time_limit,
            default="none",
            show_default=True,
            metavar="SECONDS",
            help="Leave out the sizes that are not measured by then.",
        ),
        click.option(
            "--add-to", type=NameOrFile(), metavar="FILE", help="A profile of these layers to add the times to."
        ),
    )
    return option_group(command, options, argument="choices", build=ModelChoices)


def _shape(text: str) -> tuple[int, ...]:
    """Sizes with commas between: `3,32,32`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= MAX_COUNT for part in parts):
        raise click.BadParameter(f"{text!r} is no shape; write 3,32,32")
    return tuple(map(int, parts))


def _range(text: str) -> tuple[int, int]:
    """First layer and one past the last, of `3-7` or `3`."""
    first, _, last = text.partition("-")
    last = last or first
    if not (first.isdecimal() and last.isdecimal()) or int(last) < int(first):
        raise click.BadParameter(f"{text!r} is no range of layers; write 3-7, counting from 0")
    return int(first), int(last) + 1


def _precision(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Precision | None:
    return None if value is None else Precision(value)
