"""The door to torch.distributed.checkpoint: tensors on disk, each once, read in whatever parts are asked for."""

import io
import pickle
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from executor.checkpoints.folder import write_file
from planner.core.errors import BadInputError

VALUES = "values.pt"
"""What is no tensor of the model: optimizer settings, and what the user adds."""


def write_tensors(tensors: dict[str, Tensor], folder: Path) -> None:
    """Write the tensors of all ranks; of those with the same name one rank writes its own."""
    with _alone_is_fine():
        save(tensors, storage_writer=FileSystemWriter(folder), planner=DefaultSavePlanner(flatten_state_dict=False))


def read_tensors(tensors: dict[str, Tensor], folder: Path) -> None:
    """Overwrite tensors with those of the same name, or DTensors with this rank's parts of them."""
    with _alone_is_fine():
        load(tensors, storage_reader=FileSystemReader(folder), planner=DefaultLoadPlanner(flatten_state_dict=False))


def read_metadata(folder: Path) -> Metadata:
    """Names, shapes and types of all tensors."""
    return FileSystemReader(folder).read_metadata()


def write_values(values: Mapping[str, Any], folder: Path) -> None:
    """Write everything else."""
    write_file(folder / VALUES, _pickled(values))


def read_values(folder: Path) -> dict[str, Any]:
    """Everything else."""
    path = folder / VALUES
    try:
        return cast(dict[str, Any], torch.load(path, map_location="cpu", weights_only=True))
    except RuntimeError as fault:
        raise ValueError(f"{VALUES}: {fault}") from None


def check_values(extra: Mapping[str, Any]) -> None:
    """Refuse now what could not be read back.

    Raises
    ------
    BadInputError
        If something is of no type that torch reads without being told to trust it.
    """
    try:
        torch.load(io.BytesIO(_pickled(extra)), weights_only=True)
    except (pickle.PickleError, AttributeError, TypeError, RuntimeError) as fault:
        raise BadInputError(
            "checkpoint: extra must be of tensors, numbers, text, lists, tuples and dictionaries: " + _line(fault)
        ) from None


@contextmanager
def complaints(place: Path, kind: type[BadInputError], what: str, *, advice: str) -> Iterator[None]:
    """Turn faults of the disk, which torch gathers from all ranks, into one line.

    Raises
    ------
    BadInputError
        Of the given kind: the place, what is wrong with it, the reason, and what to do.
    """
    try:
        yield
    except CheckpointException as fault:
        rank, (cause, _) = min(fault.failures.items())
        raise kind(f"{place}: {what} by rank {rank}: {_line(cause)}; {advice}") from None
    except (OSError, EOFError, ValueError, pickle.PickleError) as fault:
        raise kind(f"{place}: {what}: {_line(fault)}; {advice}") from None


def _pickled(values: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(dict(values), buffer)
    return buffer.getvalue()


def _line(fault: BaseException) -> str:
    if isinstance(fault, OSError) and fault.strerror:
        return f"{fault.strerror}: {fault.filename}" if fault.filename else fault.strerror
    return f"{type(fault).__name__}: {fault}".partition("\n")[0]


@contextmanager
def _alone_is_fine() -> Iterator[None]:
    """Keep torch from warning a process that is alone that it may not be meant to be."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is", category=UserWarning)
        yield
