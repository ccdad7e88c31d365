"""Options of `plan convert`: how to read other planners' files, and what to write."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import click

from stagecut.planner.cli.options.outputs import AnnouncedOutputs
from stagecut.planner.cli.parameters.catalogue import catalogue_model, is_profile, load_profile
from stagecut.planner.cli.parameters.files import NameOrFile, OutputFile, output_option
from stagecut.planner.cli.parameters.groups import member_option, option
from stagecut.planner.cli.parameters.types import COUNT, layer_counts, plain_name
from stagecut.planner.core.messages.errors import BadInputError, OutputError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.documents.write import check_writable
from stagecut.planner.io.readers.conversion import Choices, TimeUnit
from stagecut.planner.io.readers.formats import TIME_UNITS, Format
from stagecut.planner.io.readers.metis import measurement_of

UNINFORMATIVE = ("graph", "profile")
"""File names in place of which the folder names the model."""
CONVERTED = "converted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the files themselves do not say."""

    HEADING: ClassVar[str] = "How to read other planners' files"

    source: Format | None = member_option(
        "--from", members=Format, help="Format of the files.  [default: detected from their content]"
    )
    name: str | None = option(
        "--name",
        type=plain_name,
        metavar="NAME",
        help="Name of the model.  [default: the profile's, else that of the file or its folder]",
    )
    device_type: tuple[str, ...] = option(
        "--device-type",
        type=plain_name,
        multiple=True,
        metavar="NAME",
        help="Name that cluster files give to the measured devices; repeat once per file.  "
        "[default: converted; for layer tables the name of the file or its folder]",
    )
    micro_batch: int = option(
        "--micro-batch", type=COUNT, default=1, help="Batch size, in samples, of the times and bytes of a graph."
    )
    time_unit: TimeUnit | None = member_option(
        "--time-unit", members=TimeUnit, help="Unit of the times.  [default: the format's usual unit]"
    )
    precision: Precision = member_option(
        "--precision", members=Precision, default=str(Precision.FP32), help="Precision in which bytes were counted."
    )
    link_bandwidth: float | None = option(
        "--link-bandwidth",
        type=click.FloatRange(1, 1e30),
        metavar="BYTES_PER_S",
        help="Bandwidth, in bytes per second, that dnn-partitioning assumed for edges without a size.",
    )
    bytes_from: str | None = option(
        "--bytes-from",
        type=NameOrFile(),
        metavar="NAME|FILE",
        help="Profile of the same model to take bytes from, for layer tables.",
    )
    num_layers: tuple[int, ...] | None = option(
        "--layers",
        type=layer_counts,
        metavar="N[,N..]",
        help="Layers of the model, of each kind if there are several, for galvatron, whose files may not say.",
    )
    keep_nodes: bool = option("--keep-nodes", is_flag=True, help="Make every node of a graph a layer of its own.")
    max_layers: int | None = option(
        "--max-layers", type=COUNT, help="Merge neighbouring nodes or layers until at most N are left."
    )

    def choices(self, paths: Sequence[str], kind: Format) -> tuple[Choices, ...]:
        """How to read each file; raises a BadInputError unless every file has a device type of its own."""
        names = self.device_type or tuple(_device_type(path, kind) for path in paths)
        if kind is Format.GALVATRON and len(names) < len(paths):
            names = names[:1] * len(paths)
        if len(names) != len(paths):
            rule = "give --device-type once per file, in the same order"
            raise BadInputError(f"got {len(paths)} files but {len(names)} device types; {rule}")
        if len(set(names)) < len(names) and kind not in (Format.METIS, Format.GALVATRON):
            rule = "give --device-type once per file"
            raise BadInputError(f"each file needs a device type of its own, got {', '.join(names)}; {rule}")
        own_name = {Format.PROFILE: "", Format.LAYER_TABLES: str(kind), Format.METIS: str(kind)}.get(
            kind, _meaningful_name(paths[0])
        )
        return tuple(
            Choices(
                name=self.name or own_name,
                device_type=name,
                micro_batch=self.micro_batch,
                time_unit=self.time_unit or TIME_UNITS[kind],
                precision=self.precision,
                link_bytes_per_s=self.link_bandwidth,
                num_layers=self.num_layers,
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
        return catalogue_model(self.bytes_from, precision=self.precision, sequence_length=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionOutputs(AnnouncedOutputs):
    """Files to write."""

    schedule_csv: Path | None = output_option(
        "--schedule-csv", text="torchtitan: also write the order of the actions to this file, and refer to it."
    )
    output: Path | None = output_option("-o", "--output", text="File to write.  [default with --to: stdout]")
    folder: Path | None = option(
        "--folder",
        type=OutputFile(),
        metavar="FOLDER",
        help="With --to: write all files, the command of each host and a README into this folder.",
    )

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that were asked for by name."""
        return tuple(path for path in (self.schedule_csv, self.output) if path is not None)

    def write_folder(self, folder: Path, files: Mapping[str, str]) -> None:
        """Write files of these names, or none of them; the folder is made if its own folder exists."""
        try:
            folder.mkdir(exist_ok=True)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise OutputError(f"{folder}: cannot be made a folder: {reason}; name another folder") from None
        for name in files:
            check_writable(folder / name, force=self.force)
        for name, text in files.items():
            self.write(folder / name, text)


def _device_type(path: str, kind: Format) -> str:
    """What the file's name says about the measured devices."""
    if kind is Format.METIS and (stated := measurement_of(path)) is not None:
        return stated.device_type
    return _meaningful_name(path) if kind is Format.LAYER_TABLES else CONVERTED


def _meaningful_name(path: str) -> str:
    """The name of a file without its suffix, or that of its folder."""
    file = Path(path)
    name = file.resolve().parent.name if file.stem in UNINFORMATIVE else file.stem
    return "".join(letter for letter in name if letter.isprintable())[:80] or CONVERTED
