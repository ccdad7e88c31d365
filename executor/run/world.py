"""The processes of a run, as torchrun's environment describes them."""

import atexit
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist

from stagecut.executor.play.objects import gather
from stagecut.executor.run.allocator import keep_freed_memory
from stagecut.executor.run.faults import FOLDER, WaitError, attempt_number
from stagecut.executor.run.loopback import ONLY_LOOPBACK
from stagecut.executor.run.meeting_place import meeting_place
from stagecut.executor.run.rank_process import is_on_one_machine
from stagecut.executor.run.run_folder import run_folder
from stagecut.executor.run.script_faults import tell_faults
from stagecut.executor.run.whereabouts import Whereabouts
from stagecut.planner.core.errors import BadInputError

T = TypeVar("T")

TIMEOUT_S = 120.0
"""How long one rank waits for another before it gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One process among the others."""

    rank: int
    world_size: int
    backend: str
    """`gloo` or `nccl`."""
    device: torch.device
    whereabouts: Whereabouts = field(repr=False, compare=False)
    store: dist.Store = field(repr=False, compare=False)  # type: ignore[name-defined]
    """What all ranks can read; of this attempt alone."""

    @property
    def everyone(self) -> tuple[int, ...]:
        """All ranks."""
        return tuple(range(self.world_size))

    def gather(self, value: T, *, classes: Sequence[type] = ()) -> list[T] | None:
        """What every rank brings, by rank; None on all ranks but the first. See :mod:`executor.play.objects`."""
        with self.whereabouts.waiting_for(self.everyone):
            return gather(value, classes=classes)

    def leave(self) -> None:
        """Stop torch.distributed, once all ranks are through.

        After the barrier they meet in the store: who is out of the barrier and closes its connections while
        another one still reads from them may take its last message back. Rank 0 goes last, for it may serve
        the store.
        """
        with self.whereabouts.waiting_for(self.everyone):
            dist.barrier()
            self._tell("through")
            self._wait_until_all_told("through")
        dist.destroy_process_group()
        self._tell("gone")
        if self.rank == 0:
            with self.whereabouts.waiting_for(self.everyone):
                self._wait_until_all_told("gone")

    def _tell(self, what: str) -> None:
        self.store.set(f"{what}/{self.rank}", "")

    def _wait_until_all_told(self, what: str) -> None:
        try:
            self.store.wait([f"{what}/{rank}" for rank in self.everyone])
        except RuntimeError as fault:
            silent = tuple(rank for rank in self.everyone if not self.store.check([f"{what}/{rank}"]))
            raise WaitError(silent) from fault

    def shared_folder(self) -> Path:
        """A folder that all ranks have in common, new in every attempt; to be called once by each.

        Raises
        ------
        BadInputError
            If they are not all on one machine.
        """
        if not is_on_one_machine():
            raise BadInputError("--mode dilated: plays a whole cluster on one machine; start all ranks on this one")
        if self.rank == 0:
            self.store.set("folder", _new_folder())
        with self.whereabouts.waiting_for((0,)):
            return Path(self.store.get("folder").decode())


def join_world(*, backend: str | None = None, device: str | None = None, timeout_s: float = TIMEOUT_S) -> World:
    """Start torch.distributed; the one place that does.

    A process that was not started as a rank is a world of one. Faults that end a rank are told once a run from here
    on: see :func:`executor.run.script_faults.tell_faults`.

    Parameters
    ----------
    backend
        `gloo` or `nccl`; None: the one that goes with the device.
    device
        `cpu` or `cuda`; None: a GPU if this host has one for each of its ranks.
    timeout_s
        Of every wait for another rank.

    Raises
    ------
    BadInputError
        If there are fewer GPUs on this host than ranks.
    WaitError
        If others do not come in time.
    """
    tell_faults()
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    chosen = _device(device)
    name = backend or ("nccl" if chosen.type == "cuda" and world_size > 1 else "gloo")
    timeout = timedelta(seconds=timeout_s)
    whereabouts = Whereabouts(rank, world_size, path=_rows_path())
    _set_threads()
    if chosen.type == "cpu":
        keep_freed_memory()
    if is_on_one_machine():
        os.environ.update(ONLY_LOOPBACK)
    if name == "nccl":
        os.environ.setdefault("NCCL_LAUNCH_ORDER_IMPLICIT", "1")  # kernels start in the order that ranks agree on
    with whereabouts.waiting_for(range(world_size)):
        store = meeting_place(timeout)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if name == "nccl" else name,
            store=store,
            rank=rank,
            world_size=world_size,
            timeout=timeout,
            device_id=chosen if name == "nccl" and chosen.type == "cuda" else None,  # sets groups up at once
        )
    tell_faults(store)
    return World(rank=rank, world_size=world_size, backend=name, device=chosen, whereabouts=whereabouts, store=store)


def _new_folder() -> str:
    """Inside the launcher's, or one that goes with this process."""
    inside = os.environ.get(FOLDER)
    if inside is not None:
        return tempfile.mkdtemp(dir=inside)
    own = ExitStack()
    atexit.register(own.close)
    return str(own.enter_context(run_folder()))


def _device(kind: str | None) -> torch.device:
    local_rank, num_local = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    num_gpus = torch.cuda.device_count() if kind != "cpu" and torch.cuda.is_available() else 0
    if kind == "cpu" or (kind is None and num_gpus < num_local):
        return torch.device("cpu")
    if num_gpus < num_local:
        raise BadInputError(f"--device cuda: {num_local} ranks on this host, but {num_gpus} GPUs; use --device cpu")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def _rows_path() -> Path | None:
    folder = os.environ.get(FOLDER)
    return Path(folder, f"attempt{attempt_number()}.rows") if folder else None


def _set_threads() -> None:
    """Divide the cores among the ranks of this host, unless somebody did."""
    if "OMP_NUM_THREADS" not in os.environ:
        num_local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // num_local))
