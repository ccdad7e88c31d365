"""Seconds of messages between two ranks, and of all-reduces among several."""

import statistics
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from stagecut.executor.measure.curves import Curve

WARMUP = 2
STREAM = 8
"""Messages that follow each other without a wait."""
BYTES_FOR_MEDIAN = 32 * 2**20
"""Small messages are repeated until this much has been sent, within limits."""
MOST_REPETITIONS = 100


def repetitions_of(num_bytes: int, least: int) -> int:
    """How often to send a message of that size: the two ends have to agree without talking."""
    return max(least, min(MOST_REPETITIONS, BYTES_FOR_MEDIAN // num_bytes))


class Messages:
    """Messages of one rank on its device.

    Parameters
    ----------
    repetitions
        Of large messages; small ones are sent more often.
    """

    def __init__(self, device: torch.device, sizes: Sequence[int], *, repetitions: int) -> None:
        self._device, self._sizes, self._repetitions = device, sizes, repetitions

    def one_way(self, peer: int, *, asks: bool) -> Curve:
        """Half of the time that a message takes to the peer and back: median by size.

        Parameters
        ----------
        asks
            Whether this rank sends first; the other one only answers, and its curve means nothing.
        """
        turn = self._ask if asks else self._answer
        return self._curve(lambda tensor: turn(peer, tensor), parts=2)

    def streaming(self, peer: int, *, asks: bool) -> Curve:
        """Time of one of several messages on the way at once, until the last one is confirmed: median by size."""
        turn = self._pour if asks else self._drain
        return self._curve(lambda tensor: turn(peer, tensor), parts=STREAM)

    def all_reduce(self, group: dist.ProcessGroup) -> Curve:
        """Time of an all-reduce among the ranks of a group: median by bytes on each of them."""
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
        """NCCL does things in the order they are given; gloo is glad of a receive that is there before its message."""
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

    def _pour(self, peer: int, tensor: Tensor) -> None:
        _wait([dist.isend(tensor, peer) for _ in range(STREAM)])
        _wait([dist.irecv(self._confirmation(), peer)])

    def _drain(self, peer: int, tensor: Tensor) -> None:
        _wait([dist.irecv(tensor, peer) for _ in range(STREAM)])
        _wait([dist.isend(self._confirmation(), peer)])

    def _confirmation(self) -> Tensor:
        return torch.zeros(1, device=self._device)

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _wait(works: Sequence[dist.Work | None]) -> None:
    for work in works:
        assert work is not None  # None is for ranks outside of the group
        work.wait()
