"""NCCL's rules on processors: what of `torch.distributed` the executor's transport uses, between threads.

Every rank is a thread with a device of its own. What it begins becomes a kernel in a stream of its communicator;
streams are dealt out to the device's launch queues in turn, computation has the first. What is emulated:

- The first use of a communicator holds up the host until all its ranks are there; so does the first message that two
  ranks exchange. With `eager`, making a group holds up all ranks of the world, as splitting a communicator does.
- Kernels of a stream run one after another, in the order in which they were begun.
- A kernel at the head of a queue holds up those behind it: until it has ended (`Hold.UNTIL_DONE`, more than hardware
  does), or until it can start (`Hold.UNTIL_STARTED`, as hardware does: a kernel whose stream is busy cannot).
- A kernel that communicates ends when all its ranks have started theirs: a send is not over until it is received.
- At most so many of them run at once (`room`), for each takes multiprocessors while it waits. They start in the order
  in which they were begun then, as NCCL_LAUNCH_ORDER_IMPLICIT has it, or as the queues let them.

Computation is real and done by the thread, while its kernel runs; waiting for a kernel holds up the thread. On a GPU
the host would run ahead: it would begin more, later in the same queues, which sets nothing free that stands before it.

Nobody sleeps and nothing times out. Once every thread waits and no kernel can go on, all threads are told so.
"""

import gc
import itertools
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

COMPUTATION = 0
"""The stream of a rank's own work."""

_here = threading.local()


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class DeadlockError(Exception):
    """All ranks wait, and nothing can go on."""


class Hold(Enum):
    """How long the head of a queue holds up those behind it."""

    UNTIL_DONE = auto()
    UNTIL_STARTED = auto()


@dataclass(frozen=True)
class Group:
    """A communicator."""

    number: int
    ranks: tuple[int, ...]

    def size(self) -> int:
        return len(self.ranks)


class P2POp(NamedTuple):
    """See `torch.distributed.P2POp`."""

    op: str
    tensor: torch.Tensor
    peer: int
    group: Group
    tag: int = 0


@dataclass(eq=False)
class Kernel:
    """Work of one device."""

    stream: int
    meeting: "Meeting | None" = None
    """None: computation, which the thread ends itself."""
    started: bool = False
    done: bool = False


@dataclass(eq=False)
class Meeting:
    """A sum, or a message from the first rank to the second, once each of them has started its kernel."""

    ranks: tuple[int, ...]
    brought: dict[int, Any] = field(default_factory=dict)
    kernels: dict[int, Kernel] = field(default_factory=dict)

    def is_full(self) -> bool:
        return len(self.kernels) == len(self.ranks) and all(kernel.started for kernel in self.kernels.values())

    def finish(self) -> None:
        """Do it."""
        if isinstance(next(iter(self.brought.values())), torch.Tensor):
            total = torch.stack([self.brought[rank] for rank in self.ranks]).sum(dim=0)
            for tensor in self.brought.values():
                tensor.copy_(total)
        else:
            sent, received = (self.brought[rank] for rank in self.ranks)
            for source, target in zip(sent, received, strict=True):
                assert source.tensor.shape == target.tensor.shape, "another message has been received"
                target.tensor.copy_(source.tensor)
        for kernel in self.kernels.values():
            kernel.done = True


class Device:
    """The streams and launch queues of one rank."""

    def __init__(self, num_queues: int, hold: Hold, room: int | None, *, in_order: bool) -> None:
        self._queues: list[deque[Kernel]] = [deque() for _ in range(num_queues)]
        self._hold, self._room, self._in_order = hold, room, in_order
        self._streams: dict[int, deque[Kernel]] = defaultdict(deque)
        self._places: dict[int, int] = {COMPUTATION: 0}
        self._communicating: list[Kernel] = []
        """Begun and not ended, in order."""

    def begin(self, kernel: Kernel) -> None:
        place = self._places.setdefault(kernel.stream, len(self._places))
        self._queues[place % len(self._queues)].append(kernel)
        self._streams[kernel.stream].append(kernel)
        if kernel.meeting:
            self._communicating.append(kernel)

    def advance(self) -> bool:
        """Start and put away what can be; give whether there was any."""
        moved = False
        self._communicating = [kernel for kernel in self._communicating if not kernel.done]
        for stream in self._streams.values():
            while stream and stream[0].done:
                stream.popleft()
                moved = True
        for queue in self._queues:
            if queue and not queue[0].started and self._can_start(queue[0]):
                queue[0].started = moved = True
            if queue and (queue[0].done or (queue[0].started and self._hold is Hold.UNTIL_STARTED)):
                queue.popleft()
                moved = True
        return moved

    def _can_start(self, kernel: Kernel) -> bool:
        if self._streams[kernel.stream][0] is not kernel:
            return False
        if kernel.meeting is None or self._room is None:
            return True
        before = itertools.takewhile(lambda other: other is not kernel, self._communicating)
        late = self._in_order and not all(other.started for other in before)
        return not late and sum(other.started for other in self._communicating) < self._room


class Fabric:
    """All devices, and what connects them."""

    def __init__(
        self,
        world_size: int,
        *,
        num_queues: int,
        hold: Hold = Hold.UNTIL_DONE,
        eager: bool = False,
        room: int | None = None,
        in_order: bool = True,
    ) -> None:
        self.world = Group(0, tuple(range(world_size)))
        self.eager = eager
        self._devices = [Device(num_queues, hold, room, in_order=in_order) for _ in self.world.ranks]
        self._changed = threading.Condition()
        self._meetings: dict[object, Meeting] = {}
        self._came: dict[object, set[int]] = defaultdict(set)
        self._waiting: dict[int, tuple[Callable[[], bool], str]] = {}
        self._running = set(self.world.ranks)
        self._fault: str | None = None
        self.broadcasts: dict[object, torch.Tensor] = {}
        """Broadcast by the host."""

    def run(self, work: Callable[["Rank"], Any]) -> list[Any]:
        """Have all ranks do something; the first of their faults is raised when all have stopped."""
        # torch holds the generator's lock while it makes a tensor of its state, as recomputation asks it to: garbage
        # collected there runs Python, lets another thread on, and that one waits for the lock with Python's held.
        with without_garbage_collection(), ThreadPoolExecutor(self.world.size()) as pool:
            futures = [pool.submit(self._run, work, Rank(self, rank)) for rank in self.world.ranks]
        faults = [fault for future in futures if (fault := future.exception())]
        for fault in sorted(faults, key=lambda fault: isinstance(fault, DeadlockError)):
            raise fault
        assert not self._meetings, "somebody has sent or received what nobody else knows of"
        return [future.result() for future in futures]

    def _run(self, work: Callable[["Rank"], Any], rank: "Rank") -> Any:
        _here.rank = rank
        try:
            return work(rank)
        except BaseException as fault:
            with self._changed:
                self._stop(f"rank {rank.number} failed: {fault}")
            raise
        finally:
            _here.rank = None
            with self._changed:
                self._running.discard(rank.number)
                self._look()

    def begin(self, rank: int, kernel: Kernel) -> None:
        with self._changed:
            self._devices[rank].begin(kernel)
            self._look()

    def end(self, kernel: Kernel) -> None:
        with self._changed:
            kernel.done = True
            self._look()

    def wait(self, rank: int, ready: Callable[[], bool], what: str) -> None:
        with self._changed:
            self._waiting[rank] = (ready, what)
            self._look()
            self._changed.wait_for(lambda: self._fault is not None or ready())
            del self._waiting[rank]
            if self._fault is not None and not ready():
                raise DeadlockError(self._fault)

    def come(self, rank: int, key: object, ranks: Sequence[int], what: str) -> None:
        """Wait until all of some ranks have come here once."""
        with self._changed:
            self._came[key].add(rank)
        self.wait(rank, lambda: self._came[key] >= set(ranks), what)

    def meet(self, rank: int, key: object, ranks: tuple[int, ...], brought: object, kernel: Kernel) -> None:
        """Let a kernel take part in what ranks do together, and begin it."""
        with self._changed:
            kernel.meeting = self._meetings.setdefault(key, Meeting(ranks))
            kernel.meeting.brought[rank] = brought
            kernel.meeting.kernels[rank] = kernel
        self.begin(rank, kernel)

    def connected(self) -> list[object]:
        """Groups, and ways from rank to rank in groups, that have been set up."""
        return [key for key in self._came if not (isinstance(key, tuple) and key[0] in {"new", "broadcast"})]

    def _look(self) -> None:
        """Let kernels run as far as they can, wake up who waited for it; find out whether all wait in vain."""
        moved = True
        while moved:
            moved = sum(device.advance() for device in self._devices) > 0
            for key, meeting in list(self._meetings.items()):
                if meeting.is_full():
                    meeting.finish()
                    del self._meetings[key]
                    moved = True
        idle = self._running <= self._waiting.keys() and not any(ready() for ready, _ in self._waiting.values())
        if self._running and idle:
            self._stop("; ".join(f"rank {rank} waits {what}" for rank, (_, what) in sorted(self._waiting.items())))
        self._changed.notify_all()

    def _stop(self, fault: str) -> None:
        self._fault = self._fault or fault
        self._changed.notify_all()


class Work(NamedTuple):
    """A batch of messages under way."""

    rank: "Rank"
    kernel: Kernel
    what: str

    def wait(self) -> None:
        self.rank.fabric.wait(self.rank.number, lambda: self.kernel.done, self.what)


class Computing(NamedTuple):
    """The work of a thread is a kernel in the stream of computation meanwhile."""

    rank: "Rank"

    def __enter__(self) -> None:
        self.rank.begin_computing()

    def __exit__(self, *_: object) -> None:
        if self.rank.is_computing:  # not after a deadlock in the midst of it
            self.rank.end_computing()


class Rank:
    """`torch.distributed` as one rank sees it."""

    P2POp = P2POp
    isend = "isend"
    irecv = "irecv"

    def __init__(self, fabric: Fabric, number: int) -> None:
        self.fabric, self.number = fabric, number
        self.group = SimpleNamespace(WORLD=fabric.world)
        self._num_groups = itertools.count(1)
        self._uses: dict[object, itertools.count[int]] = defaultdict(itertools.count)
        self._computation: Kernel | None = None
        self.computing = Computing(self)

    def get_rank(self) -> int:
        return self.number

    def new_group(self, ranks: list[int], *, backend: str | None = None) -> Group:
        assert backend in {None, "nccl"}
        group = Group(next(self._num_groups), tuple(ranks))
        if self.fabric.eager:
            self.fabric.come(self.number, ("new", group), self.fabric.world.ranks, f"to make group {ranks}")
        return group

    def batch_isend_irecv(self, p2p_op_list: list[P2POp]) -> list[Work]:
        """One kernel; here all of a batch go one way."""
        op, _, peer, group, _ = p2p_op_list[0]
        assert all((other.op, other.peer, other.group, other.tag) == (op, peer, group, 0) for other in p2p_op_list)
        way = (self.number, peer) if op == self.isend else (peer, self.number)
        assert set(way) <= set(group.ranks)
        self.fabric.come(self.number, (group, way), way, f"to connect group {group.ranks} for its first {op}")
        kernel = Kernel(stream=group.number + 1)
        self.fabric.meet(self.number, (group, way, next(self._uses[group, way])), way, p2p_op_list, kernel)
        return [Work(self, kernel, f"for {op} on group {group.ranks}")]

    def all_reduce(self, tensor: torch.Tensor, *, group: Group) -> None:
        """The computation that waits for it is cut in two."""
        computing = self.is_computing
        if computing:
            self.end_computing()
        self.fabric.come(self.number, group, group.ranks, f"to connect group {group.ranks}")
        kernel = Kernel(stream=group.number + 1)
        self.fabric.meet(self.number, (group, next(self._uses[group])), group.ranks, tensor, kernel)
        self.fabric.wait(self.number, lambda: kernel.done, f"for a sum on group {group.ranks}")
        if computing:
            self.begin_computing()

    def get_backend_config(self) -> str:
        return "cpu:gloo,cuda:nccl"

    def broadcast(self, tensor: torch.Tensor, src: int) -> None:
        """A broadcast on the host, over gloo."""
        key = ("broadcast", next(self._uses["broadcast"]))
        if self.number == src:
            self.fabric.broadcasts[key] = tensor.clone()
        self.fabric.come(self.number, key, self.fabric.world.ranks, "for a broadcast")
        tensor.copy_(self.fabric.broadcasts[key])

    def barrier(self) -> None:
        self.all_reduce(torch.zeros(1), group=self.fabric.world)

    @property
    def is_computing(self) -> bool:
        return self._computation is not None

    def begin_computing(self) -> None:
        kernel = self._computation = Kernel(COMPUTATION)
        self.fabric.begin(self.number, kernel)
        self.fabric.wait(self.number, lambda: kernel.started, "to compute")

    def end_computing(self) -> None:
        kernel, self._computation = self._computation, None
        assert kernel is not None
        self.fabric.end(kernel)


def current_rank() -> Rank | None:
    """The rank of this thread."""
    return getattr(_here, "rank", None)
