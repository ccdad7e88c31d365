"""A parameter server as a process of its own, and the way to it.

A stage and a server are a process group of two ranks, and a thread at each end: gloo keeps no order between threads,
and a server must not let one worker wait for what another one does. The stage speaks first: a header, and what belongs
to it. Headers are four numbers:

    push   1, wave, numbers that follow, 0
    pull   2, clock of the stage's weights, clock that they need, 0; the answer: clock, numbers that follow, 0, 0
    done   3, 0, 0, 0: until the stage trains again
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from stagecut.executor.ranks.failures import WaitError
from stagecut.executor.waves.carriers.channels import Channel, Ended
from stagecut.executor.waves.carriers.flat import FlatLayout
from stagecut.executor.waves.carriers.shard import Pulled, Shard
from stagecut.executor.waves.setting.data import WaveData
from stagecut.executor.waves.setting.execution import WaveExecution
from stagecut.executor.waves.setting.layout import Member, WaveRole
from stagecut.executor.waves.setting.orders import Orders
from stagecut.executor.waves.setting.report import WaveReport

_PUSH, _PULL, _DONE = 1, 2, 3
_HEADER = 4
LONG = timedelta(days=30)
"""A stage may compute as long as it likes between two messages; who waits for it has a timeout of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One end of the connection of a stage and a server."""

    group: dist.ProcessGroup
    peer: int
    """The other rank."""

    def send(self, tensor: Tensor) -> None:
        """Send a tensor, waiting until it has left."""
        dist.send(tensor, self.peer, group=self.group)

    def receive(self, num_numbers: int, dtype: torch.dtype) -> Tensor:
        """Wait for a tensor."""
        tensor = torch.empty(num_numbers, dtype=dtype)
        dist.recv(tensor, self.peer, group=self.group)
        return tensor

    def send_header(self, *numbers: int) -> None:
        """Send a few numbers."""
        self.send(torch.tensor([*numbers, *[0] * (_HEADER - len(numbers))], dtype=torch.int64))

    def receive_header(self) -> list[int]:
        """Wait for a few numbers."""
        return [int(number) for number in self.receive(_HEADER, torch.int64)]


Waiting = Callable[[Sequence[int]], AbstractContextManager[None]]
"""What waits for some ranks runs inside; it turns torch's errors into a WaitError."""


@contextmanager
def waiting_alone(ranks: Sequence[int]) -> Iterator[None]:
    """Blame the ranks waited for: without a wait graph nothing else is known."""
    try:
        yield
    except RuntimeError as fault:
        raise WaitError(tuple(ranks)) from fault


class RemoteChannel(Channel):
    """To a shard in another process; a thread sends and receives in the order in which it is told to.

    Parameters
    ----------
    like
        An empty vector of the type and device of the stage's weights.
    timeout_s
        How long to wait for an answer.
    outlives
        Whether to wait once more after a fault, because the server will go on without whoever caused it.
    """

    def __init__(
        self,
        wire: Wire,
        like: Tensor,
        *,
        timeout_s: float,
        waiting: Waiting = waiting_alone,
        outlives: Callable[[WaitError], bool] = lambda _: False,
    ) -> None:
        self._wire, self._like = wire, like
        self._timeout_s, self._waiting, self._outlives = timeout_s, waiting, outlives
        self._orders: Orders[Pulled | None] = Orders(f"to-rank{wire.peer}")
        self._asked: Future[Pulled | None] = Future()

    def push(self, wave: int, vector: Tensor) -> Ended:
        """See :class:`Channel`."""
        host = vector.cpu()

        def order() -> None:
            self._wire.send_header(_PUSH, wave, host.numel())
            self._wire.send(host)

        return self._orders.put(order)

    def ask(self, *, have: int, least: int) -> Ended:
        """See :class:`Channel`."""

        def order() -> Pulled:
            self._wire.send_header(_PULL, have, least)
            clock, num_numbers, *_ = self._wire.receive_header()
            content = self._wire.receive(num_numbers, self._like.dtype)
            return Pulled(clock=clock, content=content.to(self._like.device))

        self._asked = self._orders.put(order)
        return self._asked

    def answer(self) -> Pulled:
        """See :class:`Channel`.

        Raises
        ------
        WaitError
            If the server does not answer in time, or the connection breaks.
        """
        while True:
            try:
                pulled = self._wait(self._asked)
            except WaitError as fault:
                if not self._outlives(fault):
                    raise
            else:
                assert pulled is not None
                return pulled

    def rest(self) -> None:
        """See :class:`Channel`: wait until all has been sent, and tell the server."""
        self._wait(self._orders.put(lambda: self._wire.send_header(_DONE)))

    def _wait(self, awaited: "Future[Pulled | None]") -> Pulled | None:
        with self._waiting((self._wire.peer,)):
            try:
                return awaited.result(timeout=self._timeout_s)
            except TimeoutError:
                raise RuntimeError(f"no answer within {self._timeout_s:g} s: timed out") from None


class WaveServer:
    """The parameter server of a host: serves as long as workers train.

    Parameters
    ----------
    layout
        Where each parameter lies in the shard's vector.
    wires
        To the members of the shard.
    drops
        Whether to go on without a worker whose connection breaks.
    watch
        Called again and again with the ranks that a worker waits for here.
    """

    def __init__(
        self,
        execution: WaveExecution,
        role: WaveRole,
        *,
        shard: Shard,
        layout: FlatLayout,
        wires: Mapping[Member, Wire],
        drops: bool = False,
        watch: Callable[[Sequence[int]], object] = lambda _: None,
    ) -> None:
        self.dropped: dict[int, int] = {}
        """Workers that are gone, each with the number of its waves that count."""
        self._drops = drops
        self.execution, self.role, self.shard, self.layout = execution, role, shard, layout
        self._wires, self._watch = wires, watch

    def train(self, data: WaveData | None = None, *, num_waves: int) -> WaveReport:
        """Serve while the workers train so many waves.

        Raises
        ------
        WaitError
            If the connection to a worker breaks, unless workers may be dropped and another one is left.
        """
        start_s = time.monotonic()
        served = {
            member: _in_thread(partial(self._serve, member, wire))
            for member, wire in self._wires.items()
            if member[0] not in self.dropped
        }
        while served:
            wait(served.values(), timeout=_WATCH_S, return_when=FIRST_EXCEPTION)
            self._watch([self._wires[member].peer for member in self.shard.late()])
            done = {member: future.exception() for member, future in served.items() if future.done()}
            for member in done:
                served.pop(member, None)
            broken = {member: fault for member, fault in done.items() if fault is not None}
            if broken:
                gone = self._drop(broken)
                served = {member: future for member, future in served.items() if member[0] not in gone}
        self._watch(())
        return WaveReport(
            rank=self.role.rank,
            worker=None,
            clock=self.shard.clock,
            start_s=start_s,
            end_s=time.monotonic(),
            dropped=tuple(self.dropped.items()),
        )

    def trained_weights(self) -> dict[str, Tensor]:
        """The weights of the shard by global name: the initial ones with all complete waves."""
        return self.layout.split(self.shard.weights.clone())

    def _drop(self, broken: Mapping[Member, BaseException]) -> set[int]:
        """Go on without the workers whose connections have broken; raises a WaitError if that is not to be."""
        gone = {worker for worker, _ in broken}
        left = {worker for worker, _ in self._wires} - gone - set(self.dropped)
        if not self._drops or not left:
            ranks = tuple(self._wires[member].peer for member in broken)
            raise WaitError(ranks) from next(iter(broken.values()))
        for worker in sorted(gone):
            self.dropped[worker] = self.shard.drop(worker)
        return gone

    def _serve(self, member: Member, wire: Wire) -> None:
        while True:
            order, first, second, _ = wire.receive_header()
            if order == _DONE:
                return
            if order == _PUSH:
                self.shard.push(member, first, wire.receive(second, self.layout.empty.dtype))
            else:
                pulled = self.shard.ask(member, have=first, least=second).result()
                wire.send_header(pulled.clock, pulled.content.numel())
                wire.send(pulled.content)


_WATCH_S = 0.1


def _in_thread(work: Callable[[], None]) -> "Future[None]":
    outcome: Future[None] = Future()

    def run() -> None:
        try:
            work()
            outcome.set_result(None)
        except BaseException as fault:
            outcome.set_exception(fault)

    threading.Thread(target=run, daemon=True).start()
    return outcome
