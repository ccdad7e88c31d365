"""The formats that can be read, and which of them a file has."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.io.documents.text import read_text
from stagecut.planner.io.documents.tree import Document, parse_document
from stagecut.planner.io.readers.conversion import Choices, Converted, TimeUnit
from stagecut.planner.io.readers.dnn_partitioning import read_dnn_partitioning
from stagecut.planner.io.readers.layer_tables import read_layer_tables
from stagecut.planner.io.readers.own_profile import read_own_profile
from stagecut.planner.io.readers.pipedream import looks_like_pipedream, read_pipedream
from stagecut.planner.io.readers.piper import read_piper


class Format(StrEnum):
    """A kind of file of another planner, or a profile of ours."""

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
"""Of the authors' own files, unless the user knows better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFile:
    """A file, and its text."""

    path: str
    text: str
    document: Document | None
    """The tree of a JSON file."""

    @property
    def format(self) -> Format:
        """The format that the file seems to have.

        Raises
        ------
        BadInputError
            If it seems to have none of them.
        """
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
        raise BadInputError(
            f"{self.path}:{root.line}: is no file of a format that is known here; --from says which of {known} it is"
        )


def open_foreign(path: str, stated: Format | None = None) -> ForeignFile:
    """Read a file.

    Parameters
    ----------
    stated
        Its format, where the user says so.

    Raises
    ------
    BadInputError
        If it cannot be read, or is neither JSON nor a graph of lines.
    """
    text = read_text(path)
    is_graph = looks_like_pipedream(text) if stated is None else stated is Format.PIPEDREAM
    if is_graph:
        return ForeignFile(path=path, text=text, document=None)
    return ForeignFile(path=path, text=text, document=parse_document(text, file=path))


def convert(
    files: Sequence[ForeignFile], kind: Format, choices: Sequence[Choices], *, bytes_from: ModelProfile | None = None
) -> Converted:
    """The profile of files of one format.

    Parameters
    ----------
    choices
        For each file.
    bytes_from
        Where layer tables take weights, activations and messages from.

    Raises
    ------
    BadInputError
        With every fault of the files, or if there are several of a format that has all in one.
    """
    if kind is not Format.LAYER_TABLES and len(files) > 1:
        raise BadInputError(
            f"{files[1].path}: one file of the format {kind} makes a profile; give {files[0].path} alone"
        )
    if kind is not Format.LAYER_TABLES and bytes_from is not None:
        raise BadInputError(f"--bytes-from is for layer tables; {files[0].path} is read as {kind}")
    if kind is Format.PIPEDREAM:
        return read_pipedream(files[0].text, file=files[0].path, choices=choices[0])
    documents = [file.document or parse_document(file.text, file=file.path) for file in files]
    if kind is Format.LAYER_TABLES:
        return read_layer_tables(documents, choices, bytes_from=bytes_from)
    read = {
        Format.PIPER: read_piper,
        Format.DNN_PARTITIONING: read_dnn_partitioning,
        Format.PROFILE: read_own_profile,
    }[kind]
    return read(documents[0], choices[0])
