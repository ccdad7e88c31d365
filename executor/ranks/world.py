"""The processes of a run, joined through torch.distributed."""

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

from stagecut.executor.ranks import environment
from stagecut.executor.ranks.allocator import keep_freed_memory
from stagecut.executor.ranks.excepthook import install_excepthook
from stagecut.executor.ranks.failures import WaitError
from stagecut.executor.ranks.rendezvous import rendezvous
from stagecut.executor.ranks.run_folder import run_folder
from stagecut.executor.ranks.wait_graph import WaitGraph
from stagecut.executor.transport.objects import gather
from stagecut.planner.core.messages.errors import BadInputError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One process of a run, and how it reaches the others."""

    rank: int
    world_size: int
    backend: str
    """`gloo` or `nccl`."""
    device: torch.device
    wait_graph: WaitGraph = field(repr=False, compare=False)
    store: dist.Store = field(repr=False, compare=False)  # type: ignore[name-defined]
    """Shared by all ranks; new in every attempt."""

    @property
    def everyone(self) -> tuple[int, ...]:
        """All ranks."""
        return tuple(range(self.world_size))

    def gather(self, value: T, *, classes: Sequence[type] = ()) -> list[T] | None:
        """The values of all ranks, by rank; None on all but the first: :mod:`stagecut.executor.transport.objects`."""
        with self.wait_graph.waiting_for(self.everyone):
            return gather(value, classes=classes)

    def meet(self, value: bytes) -> list[bytes]:
        """What all ranks have to say in the end, by rank; once a run.

        When this returns nobody has anything left to read. Of ranks that have died, and can be done without, it is what
        the process that forked them says: see :func:`exit_code_in`.
        """
        self.store.compare_set(f"{ANSWER}/{self.rank}", "", value)
        with self.wait_graph.waiting_for(self.everyone):
            self._wait_for_all(ANSWER)
            return [self.store.get(f"{ANSWER}/{rank}") for rank in self.everyone]

    def leave(self) -> None:
        """Shut torch.distributed down once all ranks are done.

        After the barrier the ranks meet again in the store: a rank that closes its connections while another is still
        reading from them may take its last message back. Rank 0 leaves last, because it may serve the store.
        """
        with self.wait_graph.waiting_for(self.everyone):
            dist.barrier()
            self._mark("done")
            self._wait_for_all("done")
        dist.destroy_process_group()
        self._mark("gone")
        if self.rank == 0:
            with self.wait_graph.waiting_for(self.everyone):
                self._wait_for_all("gone")

    def _mark(self, what: str) -> None:
        self.store.set(f"{what}/{self.rank}", "")

    def _wait_for_all(self, what: str) -> None:
        try:
            self.store.wait([f"{what}/{rank}" for rank in self.everyone])
        except RuntimeError as fault:
            silent = tuple(rank for rank in self.everyone if not self.store.check([f"{what}/{rank}"]))
            raise WaitError(silent) from fault

    def shared_folder(self) -> Path:
        """A folder shared by all ranks, new in every attempt; each rank calls this once.

        Raises
        ------
        BadInputError
            If the ranks are not all on one machine.
        """
        if not environment.is_on_one_machine():
            raise BadInputError("--mode dilated emulates a cluster on one machine; start all ranks on this one")
        if self.rank == 0:
            self.store.set("folder", _new_folder())
        with self.wait_graph.waiting_for((0,)):
            return Path(self.store.get("folder").decode())


ANSWER = "answer"
"""What keys of the store with a rank's last words begin with."""
_DIED = b"died "


def answer_for(store: dist.Store, rank: int, exit_code: int) -> None:  # type: ignore[name-defined]
    """Let those who :meth:`World.meet` know of a rank that has died, unless it has said its last words before."""
    store.compare_set(f"{ANSWER}/{rank}", "", _DIED + str(exit_code).encode())


def exit_code_in(answer: bytes) -> int | None:
    """The exit code of a rank that has died without an answer of its own; else None."""
    return int(answer.removeprefix(_DIED)) if answer.startswith(_DIED) else None


def join_world(
    *, backend: str | None = None, device: str | None = None, timeout_s: float = environment.TIMEOUT_S
) -> World:
    """Start torch.distributed; the only place that does.

    A process that was not started as a rank is a world of one. From here on, a failure that ends a rank is reported
    once per run: see :func:`stagecut.executor.ranks.excepthook.install_excepthook`.

    Parameters
    ----------
    backend
        `gloo` or `nccl`; None: the one that suits the device.
    device
        `cpu` or `cuda`; None: a GPU if this host has one for each of its ranks.
    timeout_s
        How long a rank waits for another.

    Raises
    ------
    BadInputError
        If there are fewer GPUs on this host than ranks.
    WaitError
        If other ranks do not join in time.
    """
    install_excepthook()
    rank, world_size, folder = environment.rank(), environment.world_size(), environment.launcher_folder()
    chosen = _device(device)
    name = backend or ("nccl" if chosen.type == "cuda" and world_size > 1 else "gloo")
    timeout = timedelta(seconds=timeout_s)
    path = folder / f"attempt{environment.attempt_number()}.rows" if folder else None
    wait_graph = WaitGraph(rank, world_size, path=path)
    _set_threads()
    if chosen.type == "cpu":
        keep_freed_memory()
    if environment.is_on_one_machine():
        os.environ.update(environment.LOOPBACK_ONLY)
    if name == "nccl":
        os.environ.setdefault("NCCL_LAUNCH_ORDER_IMPLICIT", "1")  # kernels start in the common order
    with wait_graph.waiting_for(range(world_size)):
        store = rendezvous(timeout)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if name == "nccl" else name,
            store=store,
            rank=rank,
            world_size=world_size,
            timeout=timeout,
            device_id=chosen if name == "nccl" and chosen.type == "cuda" else None,  # sets up groups at once
        )
    install_excepthook(store)
    return World(rank=rank, world_size=world_size, backend=name, device=chosen, wait_graph=wait_graph, store=store)


def _new_folder() -> str:
    """Inside the launcher's folder, or one removed with this process."""
    if (folder := environment.launcher_folder()) is not None:
        return tempfile.mkdtemp(dir=folder)
    own = ExitStack()
    atexit.register(own.close)
    return str(own.enter_context(run_folder()))


def _device(kind: str | None) -> torch.device:
    local_rank, num_local = int(os.environ.get("LOCAL_RANK", "0")), environment.local_world_size()
    num_gpus = torch.cuda.device_count() if kind != "cpu" and torch.cuda.is_available() else 0
    if kind == "cpu" or (kind is None and num_gpus < num_local):
        return torch.device("cpu")
    if num_gpus < num_local:
        raise BadInputError(f"--device cuda: this host has {num_local} ranks but {num_gpus} GPUs; use --device cpu")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def _set_threads() -> None:
    """Divide the cores among the ranks of this host, unless the user has chosen."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // environment.local_world_size()))
