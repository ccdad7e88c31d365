"""The only user of torch.distributed.checkpoint: writes each tensor once, and reads any part of it."""

import io
import os
import pickle
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.futures import Future

from stagecut.executor.checkpoint.checksums import FileSum, HashedFile, sum_of
from stagecut.executor.checkpoint.folder import write_file
from stagecut.executor.checkpoint.metadata import METADATA, parse_metadata
from stagecut.planner.core.messages.errors import BadInputError

VALUES = "values.pt"
"""Everything but the model's and optimizer's tensors: optimizer settings, and what the user adds."""


def write_tensors(tensors: dict[str, Tensor], folder: Path) -> dict[str, FileSum]:
    """Write the tensors of all ranks; those of the same name are written by one rank.

    Returns
    -------
    dict
        Checksums of the files that this rank has written, by name.
    """
    writer, files = FileSystemWriter(folder), _HashedFiles()
    writer.fs = files
    with _single_process_allowed():
        save(tensors, storage_writer=writer, planner=DefaultSavePlanner(flatten_state_dict=False))
    return files.sums


def read_tensors(tensors: dict[str, Tensor], folder: Path, metadata: Metadata) -> None:
    """Overwrite tensors with those of the same name, or DTensors with this rank's parts of them."""
    with _single_process_allowed():
        load(tensors, storage_reader=_Reader(folder, metadata), planner=DefaultLoadPlanner(flatten_state_dict=False))


def read_metadata(folder: Path) -> Metadata:
    """Names, shapes and types of all tensors."""
    return parse_metadata((folder / METADATA).read_bytes())


def write_values(values: Mapping[str, Any], folder: Path, *, name: str = VALUES) -> FileSum:
    """Write everything else."""
    content = _pickled(values)
    write_file(folder / name, content)
    return sum_of(content)


def read_values(folder: Path, *, name: str = VALUES) -> dict[str, Any]:
    """Everything else."""
    path = folder / name
    try:
        return cast(dict[str, Any], torch.load(path, map_location="cpu", weights_only=True))
    except RuntimeError as fault:
        raise ValueError(f"{name}: {fault}") from None


def check_values(values: Mapping[str, Any], what: str) -> None:
    """Refuse now what could not be read back later.

    Parameters
    ----------
    what
        What to call the values in messages.

    Raises
    ------
    BadInputError
        If a value is of a type that torch does not read with `weights_only`.
    """
    try:
        torch.load(io.BytesIO(_pickled(values)), weights_only=True)
    except (pickle.PickleError, AttributeError, TypeError, RuntimeError) as fault:
        raise BadInputError(
            f"checkpoint: {what} must consist of tensors, numbers, text, lists, tuples and dictionaries: {_line(fault)}"
        ) from None


class _HashedFiles(FileSystem):
    """Computes checksums of files while they are written."""

    def __init__(self) -> None:
        self.sums: dict[str, FileSum] = {}

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        """See :class:`torch.distributed.checkpoint.filesystem.FileSystemBase`; for writing only."""
        file = HashedFile(Path(path))
        try:
            with file:
                yield file
        except Exception:
            if file.fault is not None:
                raise file.fault from None
            raise
        self.sums[Path(path).name] = file.sum

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """See :class:`torch.distributed.checkpoint.filesystem.FileSystemBase`."""
        super().rename(path, new_path)
        self.sums[Path(new_path).name] = self.sums.pop(Path(path).name)


class _Reader(FileSystemReader):
    """Reads one file after another, and names the one that cannot be read.

    The metadata have been read already, because torch would run what a pickle names.
    """

    def __init__(self, folder: Path, metadata: Metadata) -> None:
        super().__init__(folder)
        self._metadata = metadata

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """See :class:`torch.distributed.checkpoint.StorageReader`."""
        return self._metadata

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """See :class:`torch.distributed.checkpoint.StorageReader`."""
        by_file: dict[str, list[ReadItem]] = defaultdict(list)
        for item in plan.items:
            by_file[self.storage_data[item.storage_index].relative_path].append(item)
        done: Future[None] = Future()
        for name, items in by_file.items():
            try:
                super().read_data(replace(plan, items=items), planner).wait()
            except OSError:
                raise
            except Exception as fault:
                raise ValueError(f"{name} is damaged: {_line(fault)}") from None
        done.set_result(None)
        return done


@contextmanager
def disk_errors(place: Path, kind: type[BadInputError], what: str, *, advice: str) -> Iterator[None]:
    """Turn disk errors, which torch gathers from all ranks, into one line.

    Raises
    ------
    BadInputError
        Of the given kind, with the place, what is wrong, the reason, and what to do.
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
    text = str(fault).partition("\n")[0]
    return text if type(fault) is ValueError and text else f"{type(fault).__name__}: {text}".removesuffix(": ")


@contextmanager
def _single_process_allowed() -> Iterator[None]:
    """Silence torch's warning about checkpoints of a single process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is", category=UserWarning)
        yield
