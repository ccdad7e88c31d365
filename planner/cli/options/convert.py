"""How to read another planner's file: options of `plan convert`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from stagecut.planner.cli.options.files import NameOrFile
from stagecut.planner.cli.options.groups import Command, option_group
from stagecut.planner.cli.options.inputs import catalogue_model, is_profile, load_profile
from stagecut.planner.cli.options.types import MAX_COUNT, name
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.readers.conversion import Choices, TimeUnit
from stagecut.planner.io.readers.formats import TIME_UNITS, Format

UNNAMED = ("graph", "profile")
"""File names that say nothing: the folder does."""
CONVERTED = "converted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the files leave open, as asked for."""

    source: str | None
    name: str | None
    device_type: tuple[str, ...]
    micro_batch: int
    time_unit: str | None
    precision: str
    link_bandwidth: float | None
    bytes_from: str | None
    keep_nodes: bool
    max_layers: int | None

    def choices(self, paths: Sequence[str], kind: Format) -> tuple[Choices, ...]:
        """For each file.

        Raises
        ------
        BadInputError
            If there are not as many device types as files, or one of them twice.
        """
        names = self.device_type or tuple(_device_type(path, kind) for path in paths)
        if len(names) != len(paths):
            rule = "give --device-type once for each file, in their order"
            raise BadInputError(f"{len(paths)} files and {len(names)} device types: {rule}")
        if len(set(names)) < len(names):
            raise BadInputError(
                f"each file must have a device type of its own, got {', '.join(names)}; give --device-type for each"
            )
        return tuple(
            Choices(
                name=self.name or _model_name(paths[0], kind),
                device_type=name,
                micro_batch=self.micro_batch,
                time_unit=TIME_UNITS[kind] if self.time_unit is None else TimeUnit(self.time_unit),
                precision=Precision(self.precision),
                link_bytes_per_s=self.link_bandwidth,
                keep_nodes=self.keep_nodes,
                max_layers=self.max_layers,
            )
            for name in names
        )

    def bytes_profile(self) -> ModelProfile | None:
        """The profile that --bytes-from names."""
        if self.bytes_from is None:
            return None
        if is_profile(self.bytes_from):
            return load_profile(self.bytes_from, sequence_length=None)
        return catalogue_model(self.bytes_from, precision=Precision(self.precision), sequence_length=None)


def reading_options(command: Command) -> Command:
    """Give a command these options, as its argument `reading`."""
    options = (
        click.option(
            "--from",
            "source",
            type=click.Choice([str(word) for word in Format]),
            help="Format of the files.  [default: what they look like]",
        ),
        click.option(
            "--name",
            type=name,
            help="What to call the model.  [default: a profile's own, the file's name, or its folder's]",
        ),
        click.option(
            "--device-type",
            type=name,
            multiple=True,
            metavar="NAME",
            help="What a cluster file calls the devices that were measured; once for each file.  "
            "[default: converted; for layer tables the file's name, or its folder's]",
        ),
        click.option(
            "--micro-batch",
            type=click.IntRange(1, MAX_COUNT),
            default=1,
            show_default=True,
            metavar="N",
            help="Samples that the times and bytes of a graph are for.",
        ),
        click.option(
            "--time-unit",
            type=click.Choice([str(word) for word in TimeUnit]),
            help="Of the times.  [default: that of the authors' files]",
        ),
        click.option(
            "--precision",
            type=click.Choice([str(word) for word in Precision]),
            default=str(Precision.FP32),
            show_default=True,
            help="In which bytes were counted.",
        ),
        click.option(
            "--link-bandwidth",
            type=click.FloatRange(1, 1e30),
            metavar="BYTES_PER_S",
            help="At which dnn-partitioning counted the cost of edges without a size.",
        ),
        click.option(
            "--bytes-from", type=NameOrFile(), metavar="NAME|FILE", help="Profile of the same model, for layer tables."
        ),
        click.option("--keep-nodes", is_flag=True, help="Make every node of a graph a layer of its own."),
        click.option(
            "--max-layers",
            type=click.IntRange(1, MAX_COUNT),
            metavar="N",
            help="Merge neighbours of a graph, or layers of a profile, until there are no more layers.",
        ),
    )
    return option_group(command, options, argument="reading", build=Reading)


def _device_type(path: str, kind: Format) -> str:
    return _meaningful_name(path) if kind is Format.LAYER_TABLES else CONVERTED


def _model_name(path: str, kind: Format) -> str:
    if kind is Format.PROFILE:
        return ""
    return str(kind) if kind is Format.LAYER_TABLES else _meaningful_name(path)


def _meaningful_name(path: str) -> str:
    """The name of a file without its suffix, or that of its folder."""
    file = Path(path)
    name = file.resolve().parent.name if file.stem in UNNAMED else file.stem
    return "".join(letter for letter in name if letter.isprintable())[:80] or CONVERTED
