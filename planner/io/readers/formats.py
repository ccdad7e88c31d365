"""Supported formats and their detection."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from stagecut.planner.chains.coarsening import coarsened, lost_times
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import ModelProfile, TimeTable
from stagecut.planner.io.documents.input_file import read_text
from stagecut.planner.io.documents.tree import Document, parse_document
from stagecut.planner.io.files.profile import profile_of
from stagecut.planner.io.readers.conversion import Choices, Converted, TimeUnit
from stagecut.planner.io.readers.dnn_partitioning import read_dnn_partitioning
from stagecut.planner.io.readers.galvatron import read_galvatron
from stagecut.planner.io.readers.layer_tables import read_layer_tables
from stagecut.planner.io.readers.metis import read_metis
from stagecut.planner.io.readers.pipedream import looks_like_pipedream, read_pipedream
from stagecut.planner.io.readers.piper import read_piper
from stagecut.planner.io.readers.slow_times import slow_times_note


class Format(StrEnum):
    """A file format of another planner, or our own profile."""

    PIPER = "piper"
    PIPEDREAM = "pipedream"
    DNN_PARTITIONING = "dnn-partitioning"
    LAYER_TABLES = "layer-tables"
    METIS = "metis"
    GALVATRON = "galvatron"
    PROFILE = "profile"


TIME_UNITS = {
    Format.PIPER: TimeUnit.SECONDS,
    Format.PIPEDREAM: TimeUnit.MILLISECONDS,
    Format.DNN_PARTITIONING: TimeUnit.MILLISECONDS,
    Format.LAYER_TABLES: TimeUnit.SECONDS,
    Format.METIS: TimeUnit.MILLISECONDS,
    Format.GALVATRON: TimeUnit.MILLISECONDS,
    Format.PROFILE: TimeUnit.SECONDS,
}
"""Units used in the authors' own files: the defaults."""
TABLES = (Format.LAYER_TABLES, Format.METIS)
"""Formats of tables of layers, which may lack bytes."""
SEVERAL_FILES = (*TABLES, Format.GALVATRON)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFile:
    """A file with its text."""

    path: str
    text: str
    document: Document | None
    """The tree of a JSON file; None for a graph in lines of text."""

    @property
    def format(self) -> Format:
        """The detected format of the file; raises a BadInputError if it is none of ours."""
        if self.document is None:
            return Format.PIPEDREAM
        root = self.document.root
        nodes, keys = root.items("nodes"), root.keys()
        signs = {
            Format.PIPER: any(node.at("TMPCs") is not None for node in nodes),
            Format.DNN_PARTITIONING: any(node.at("fpgaLatency") is not None for node in nodes),
            Format.PROFILE: bool(root.items("layers")),
            Format.METIS: root.at("execution_time") is not None,
            Format.GALVATRON: any(key.startswith("layertype_") for key in keys),
            Format.LAYER_TABLES: any(key.isdecimal() for key in keys),
        }
        if (found := next((kind for kind, is_there in signs.items() if is_there), None)) is not None:
            return found
        known = ", ".join(Format)
        raise BadInputError(f"{self.path}:{root.line}: unrecognised format; name it with --from, one of {known}")


def open_foreign(path: str, stated: Format | None = None) -> ForeignFile:
    """Read a file; `stated` is its format, if the user names it.

    Raises a BadInputError if it cannot be read, or is neither JSON nor a graph in lines of text.
    """
    text = read_text(path)
    is_graph = looks_like_pipedream(text) if stated is None else stated is Format.PIPEDREAM
    if is_graph:
        return ForeignFile(path=path, text=text, document=None)
    return ForeignFile(path=path, text=text, document=parse_document(text, file=path))


def convert(
    files: Sequence[ForeignFile], kind: Format, choices: Sequence[Choices], *, bytes_from: ModelProfile | None = None
) -> Converted:
    """Convert files of one format into a profile.

    There is one of the choices for each file; layer tables take weights, activations and messages from `bytes_from`.

    Raises
    ------
    BadInputError
        With every fault of the files, each with its line; or if there are more files than the format allows.
    """
    if kind not in SEVERAL_FILES and len(files) > 1:
        raise BadInputError(f"{files[1].path}: the format {kind} takes a single file; give {files[0].path} alone")
    if kind not in TABLES and bytes_from is not None:
        raise BadInputError(f"--bytes-from applies to tables of layers only; {files[0].path} is read as {kind}")
    result = _read(files, kind, choices, bytes_from)
    slow = slow_times_note(result.profile)
    unit = "if the file is in milliseconds, use --time-unit ms"
    return replace(result, notes=(*result.notes, f"{slow}: {unit}")) if slow else result


def _read(
    files: Sequence[ForeignFile], kind: Format, choices: Sequence[Choices], bytes_from: ModelProfile | None
) -> Converted:
    if kind is Format.PIPEDREAM:
        return read_pipedream(files[0].text, file=files[0].path, choices=choices[0])
    documents = [file.document or parse_document(file.text, file=file.path) for file in files]
    if kind in TABLES:
        tables = read_metis if kind is Format.METIS else read_layer_tables
        return tables(documents, choices, bytes_from=bytes_from)
    if kind is Format.GALVATRON:
        return read_galvatron(documents, choices[0])
    read = {
        Format.PIPER: read_piper,
        Format.DNN_PARTITIONING: read_dnn_partitioning,
        Format.PROFILE: _merged_profile,
    }[kind]
    return read(documents[0], choices[0])


def _merged_profile(document: Document, choices: Choices) -> Converted:
    """The profile under the chosen name, with at most the chosen number of layers."""
    profile = _in_unit(profile_of(document), choices.time_unit.seconds)
    coarse = profile if choices.max_layers is None else coarsened(profile, choices.max_layers)
    notes = tuple(
        f"merged layers have no micro-batch size in common on {device_type}: its times were dropped"
        for device_type in lost_times(profile, coarse)
    )
    return Converted(
        profile=replace(coarse, name=choices.name or profile.name), num_nodes=profile.num_layers, notes=notes
    )


def _in_unit(profile: ModelProfile, unit_s: float) -> ModelProfile:
    """The profile with times that were stated in another unit than seconds."""
    layers = (replace(layer, times=tuple(_scaled(table, unit_s) for table in layer.times)) for layer in profile.layers)
    return profile if unit_s == 1 else replace(profile, layers=tuple(layers))


def _scaled(table: TimeTable, factor: float) -> TimeTable:
    forward_s, backward_s = (tuple(value * factor for value in each) for each in (table.forward_s, table.backward_s))
    return replace(table, forward_s=forward_s, backward_s=backward_s)
