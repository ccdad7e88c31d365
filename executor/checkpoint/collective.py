"""What all ranks of a run do together to write a checkpoint or to read one."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import torch.distributed as dist

from stagecut.executor.checkpoint.checksums import damage
from stagecut.executor.checkpoint.folder import MANIFEST, discard, latest, prune, publish, write_file
from stagecut.executor.checkpoint.manifest import Manifest
from stagecut.executor.checkpoint.store import VALUES, write_values
from stagecut.executor.ranks.failures import RankRole
from stagecut.executor.transport.interface import Transport
from stagecut.executor.transport.objects import gather_everywhere
from stagecut.planner.core.messages.errors import BadInputError

K = TypeVar("K")
V = TypeVar("V")


class Layout(Protocol):
    """All ranks of a run."""

    @property
    def world_size(self) -> int:
        """How many there are."""
        ...


class Ranks(Protocol):
    """One rank of a run, and its way to the others: a pipeline, or a rank of virtual workers."""

    @property
    def role(self) -> RankRole:
        """What this rank is."""
        ...

    @property
    def layout(self) -> Layout:
        """All of them."""
        ...

    @property
    def transport(self) -> Transport:
        """For barriers and broadcasts."""
        ...


def chosen(folder: Path) -> Path:
    """A checkpoint, or the newest one of a folder of them."""
    if (folder / MANIFEST).is_file():
        return folder
    place = latest(folder)
    if place is None:
        raise BadInputError(f"{folder}: contains no complete checkpoint; train from scratch, or choose another folder")
    return place


def check_files(ranks: Ranks, place: Path, manifest: Manifest) -> None:
    """Refuse damaged files, on all ranks alike; each rank checks some of the files."""
    if manifest.files is None:
        if ranks.role.rank == 0:
            warnings.warn(
                f"{place}: was written without checksums by an earlier version; damage to it cannot be detected",
                stacklevel=3,
            )
        return
    by_size = sorted(manifest.files.items(), key=lambda file: file[1], reverse=True)
    own = dict(by_size[ranks.role.rank :: ranks.layout.world_size])
    found = [problem for problem in gathered(damage(place, own)) if problem]
    if found:
        raise ValueError(min(found))


def finish(partial: Path, place: Path, values: dict[str, Any], manifest: Manifest, *, keep: int) -> None:
    """Write what the first rank writes, and give the checkpoint its name."""
    files = {**(manifest.files or {}), VALUES: write_values(values, partial)}
    write_file(partial / MANIFEST, replace(manifest, files=files).text().encode())
    publish(partial, place)
    prune(place.parent, keep=keep, up_to=manifest.num_steps)


def gathered(own: V, *, classes: Sequence[type] = ()) -> list[V]:
    """The values of all ranks, by rank."""
    return gather_everywhere(own, classes=classes) if dist.is_initialized() else [own]


def merged(parts: Iterable[dict[K, V]]) -> dict[K, V]:
    """All entries of some dictionaries."""
    return {key: value for part in parts for key, value in part.items()}


def on_first_rank(ranks: Ranks, folder: Path, work: Callable[[], object]) -> None:
    """Let rank 0 do something while the others wait, and raise its error on all of them."""
    fault = None
    if ranks.role.rank == 0:
        try:
            work()
        except OSError as error:
            fault = (error.errno, error.strerror, str(error.filename or folder))
    common = cast(tuple[int, str, str] | None, ranks.transport.broadcast(fault, 0))
    if common is not None:
        raise OSError(*common)


@contextmanager
def whole_or_not_at_all(ranks: Ranks, partial: Path) -> Iterator[None]:
    """Remove what could not be finished right away: the disk may be full."""
    try:
        yield
    except BaseException:  # torch's CheckpointException is not an Exception
        if ranks.role.rank == 0:
            discard(partial)
        raise
