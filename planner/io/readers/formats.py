"""Supported formats and their detection."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from stagecut.planner.chains.coarsening import coarsened, lost_times
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.io.documents.input_file import read_text
from stagecut.planner.io.documents.tree import Document, parse_document
from stagecut.planner.io.files.profile import profile_of
from stagecut.planner.io.readers.conversion import Choices, Converted, TimeUnit
from stagecut.planner.io.readers.dnn_partitioning import read_dnn_partitioning
from stagecut.planner.io.readers.layer_tables import read_layer_tables
from stagecut.planner.io.readers.pipedream import looks_like_pipedream, read_pipedream
from stagecut.planner.io.readers.piper import read_piper


class Format(StrEnum):
    """A file format of another planner, or our own profile."""

    PIPER = "piper"
    PIPEDREAM = "pipedream"
    DNN_PARTITIONING = "dnn-partitioning"
    LAYER_TABLES = "layer-tables"
    PROFILE = "profile"


TIME_UNITS = {
    Format.PIPER: TimeUnit.SECONDS,
    Format.PIPEDREAM: TimeUnit.MILLISECONDS,
    Format.DNN_PARTITIONING: TimeUnit.MILLISECONDS,
    Format.LAYER_TABLES: TimeUnit.SECONDS,
    Format.PROFILE: TimeUnit.SECONDS,
}
"""Units used in the authors' own files: the defaults."""


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
        nodes = root.items("nodes")
        if any(node.at("TMPCs") is not None for node in nodes):
            return Format.PIPER
        if any(node.at("fpgaLatency") is not None for node in nodes):
            return Format.DNN_PARTITIONING
        if root.items("layers"):
            return Format.PROFILE
        if any(key.isdecimal() for key in root.keys()):  # noqa: SIM118 - a method of the tree
            return Format.LAYER_TABLES
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
        With every fault of the files, each with its line; if layer tables have different numbers of layers; or
        if there is more than one file and the format allows only one.
    """
    if kind is not Format.LAYER_TABLES and len(files) > 1:
        raise BadInputError(f"{files[1].path}: the format {kind} takes a single file; give {files[0].path} alone")
    if kind is not Format.LAYER_TABLES and bytes_from is not None:
        raise BadInputError(f"--bytes-from applies to layer tables only; {files[0].path} is read as {kind}")
    if kind is Format.PIPEDREAM:
        return read_pipedream(files[0].text, file=files[0].path, choices=choices[0])
    documents = [file.document or parse_document(file.text, file=file.path) for file in files]
    if kind is Format.LAYER_TABLES:
        return read_layer_tables(documents, choices, bytes_from=bytes_from)
    read = {
        Format.PIPER: read_piper,
        Format.DNN_PARTITIONING: read_dnn_partitioning,
        Format.PROFILE: _merged_profile,
    }[kind]
    return read(documents[0], choices[0])


def _merged_profile(document: Document, choices: Choices) -> Converted:
    """The profile under the chosen name, with at most the chosen number of layers."""
    profile = profile_of(document)
    coarse = profile if choices.max_layers is None else coarsened(profile, choices.max_layers)
    notes = tuple(
        f"merged layers have no micro-batch size in common on {device_type}: its times were dropped"
        for device_type in lost_times(profile, coarse)
    )
    return Converted(
        profile=replace(coarse, name=choices.name or profile.name), num_nodes=profile.num_layers, notes=notes
    )
