"""Times messages between two ranks, and all-reduces among several."""

import statistics
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from stagecut.executor.measure.curves import Curve

WARMUP = 2
STREAM = 8
"""Messages in flight at once."""
BYTES_FOR_MEDIAN = 32 * 2**20
"""Small messages are repeated until about this much has been sent."""
MOST_REPETITIONS = 100


def repetitions_of(num_bytes: int, least: int) -> int:
    """How often to send a message of this size; both ends must compute the same number."""
    return max(least, min(MOST_REPETITIONS, BYTES_FOR_MEDIAN // num_bytes))


class MessageTimer:
    """Times messages of one rank; small ones are repeated more often than `repetitions`."""

    def __init__(self, device: torch.device, sizes: Sequence[int], *, repetitions: int) -> None:
        self._device, self._sizes, self._repetitions = device, sizes, repetitions

    def one_way(self, peer: int, *, asks: bool) -> Curve:
        """Half of the round-trip time of a message: median by size.

        Parameters
        ----------
        asks
            Whether this rank sends first; the curve of the other one, which only answers, is meaningless.
        """
        turn = self._ask if asks else self._answer
        return self._curve(lambda tensor: turn(peer, tensor), parts=2)

    def streaming(self, peer: int, *, asks: bool) -> Curve:
        """Time per message of several in flight at once, until the last is confirmed: median by size."""
        turn = self._send_stream if asks else self._receive_stream
        return self._curve(lambda tensor: turn(peer, tensor), parts=STREAM)

    def all_reduce(self, group: dist.ProcessGroup) -> Curve:
        """Time of an all-reduce in a group: median by bytes per rank."""
        return self._curve(lambda tensor: dist.all_reduce(tensor, group=group), parts=1)

    def _curve(self, turn: Callable[[Tensor], object], *, parts: int) -> Curve:
        return tuple((float(size), self._median_s(turn, size) / parts) for size in self._sizes)

    def _median_s(self, turn: Callable[[Tensor], object], size: int) -> float:
        tensor = torch.zeros(size // 4, device=self._device)
        seconds = []
        for _ in range(WARMUP + repetitions_of(size, self._repetitions)):
            self._synchronize()
            start_s = time.perf_counter()
            turn(tensor)
            self._synchronize()
            seconds.append(time.perf_counter() - start_s)
        return statistics.median(seconds[WARMUP:])

    def _ask(self, peer: int, tensor: Tensor) -> None:
        """NCCL runs operations in order; gloo is faster if the receive is posted before its message arrives."""
        back = torch.empty_like(tensor)
        if self._device.type == "cuda":
            works = [dist.isend(tensor, peer), dist.irecv(back, peer)]
        else:
            works = [dist.irecv(back, peer), dist.isend(tensor, peer)]
        _wait(works)

    @staticmethod
    def _answer(peer: int, tensor: Tensor) -> None:
        _wait([dist.irecv(tensor, peer)])
        _wait([dist.isend(tensor, peer)])

    def _send_stream(self, peer: int, tensor: Tensor) -> None:
        _wait([dist.isend(tensor, peer) for _ in range(STREAM)])
        _wait([dist.irecv(self._confirmation(), peer)])

    def _receive_stream(self, peer: int, tensor: Tensor) -> None:
        _wait([dist.irecv(tensor, peer) for _ in range(STREAM)])
        _wait([dist.isend(self._confirmation(), peer)])

    def _confirmation(self) -> Tensor:
        return torch.zeros(1, device=self._device)

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _wait(works: Sequence[dist.Work | None]) -> None:
    for work in works:
        assert work is not None  # None only for ranks outside the group
        work.wait()
