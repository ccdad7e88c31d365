"""Interleaved 1F1B: several stages, called chunks, take turns on each device group.

With D device groups, v chunks and M micro-batches there are S = D v stages, and stage s = c D + d is
chunk c of device group d. Megatron-LM's order (Narayanan et al., SC 2021): micro-batches come in
rounds of D; the forwards of a round run chunk 0 for all of them, then chunk 1, and so on, and backwards
do the same with the chunks reversed. Device group d runs min(M v, 2 (D - d - 1) + (v - 1) D) forwards, then
alternates between a forward and a backward, then runs the remaining backwards.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from stagecut.planner.core.messages.checks import require, require_count
from stagecut.planner.core.numerics.arrays import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Interleaving:
    """Order of the forwards and backwards of D device groups.

    The forwards of a device group are numbered from 0 in the order it runs them, and so are its backwards.
    """

    num_devices: int
    """Device groups D."""
    chunks: int
    """Stages v of each device group."""
    num_microbatches: int
    """M, a multiple of D."""

    def __post_init__(self) -> None:
        for field in ("num_devices", "chunks", "num_microbatches"):
            require_count("interleaved schedule", field, getattr(self, field))
        rule = f"a multiple of the {self.num_devices} device groups"
        fits = self.num_microbatches % self.num_devices == 0
        require(fits, "interleaved schedule", "num_microbatches", rule, self.num_microbatches)

    @property
    def num_forwards(self) -> int:
        """Number of forwards, and of backwards, of each device group: M v."""
        return self.num_microbatches * self.chunks

    @property
    def warmup(self) -> Ints:
        """Forwards of each device group before forwards and backwards alternate, shape (D,)."""
        later = self.num_devices - 1 - np.arange(self.num_devices)
        return np.minimum(self.num_forwards, 2 * later + (self.chunks - 1) * self.num_devices)

    @property
    def warmup_depth(self) -> Ints:
        """Forwards of each stage before its first backward, shape (D v,): the most it ever has in flight."""
        before, _ = self.before_first_backward
        chunk = np.arange(self.chunks)[:, None]
        return before[chunk, np.arange(self.num_devices), chunk].ravel()

    @property
    def before_first_backward(self) -> tuple[Ints, Ints]:
        """Forwards and backwards that precede the first backward of a stage on its device group.

        Counts by chunk and device group of the stage, and by chunk of the action, each of shape (v, D, v).
        """
        backwards = (self.chunks - 1 - np.arange(self.chunks)[:, None]) * self.num_devices
        forwards = np.minimum(self.num_forwards, self.warmup + backwards + 1)
        return self.forwards_by_chunk(forwards), self.backwards_by_chunk(np.broadcast_to(backwards, forwards.shape))

    @property
    def until_last_forward(self) -> tuple[Ints, Ints]:
        """Forwards up to and including the last one of a stage, and backwards before it; shapes as above."""
        left = (self.chunks - 1 - np.arange(self.chunks)[:, None]) * self.num_devices
        forwards = np.broadcast_to(self.num_forwards - left, (self.chunks, self.num_devices))
        backwards = np.maximum(0, forwards - 1 - self.warmup)
        return self.forwards_by_chunk(forwards), self.backwards_by_chunk(backwards)

    def action(self, number: int) -> tuple[int, int]:
        """Chunk c and micro-batch of a forward; the backward of that number has chunk v - 1 - c."""
        rounds, place = divmod(number, self.num_devices * self.chunks)
        chunk, member = divmod(place, self.num_devices)
        return chunk, rounds * self.num_devices + member

    def forwards_by_chunk(self, numbers: Ints) -> Ints:
        """How many of the first n forwards belong to each chunk, shape (*n.shape, v)."""
        rounds, place = np.divmod(numbers[..., None], self.num_devices * self.chunks)
        begun = place - self.num_devices * np.arange(self.chunks)
        return rounds * self.num_devices + np.clip(begun, 0, self.num_devices)

    def backwards_by_chunk(self, numbers: Ints) -> Ints:
        """How many of the first n backwards belong to each chunk, shape (*n.shape, v)."""
        return self.forwards_by_chunk(numbers)[..., ::-1]


@lru_cache(maxsize=1024)
def in_flight(order: Interleaving, device: int) -> tuple[Ints, Ints]:
    """Micro-batches of each chunk that a device group holds during an action, shape (n, v).

    Also returns the chunk of each action, shape (n,). Equal pairs of both are listed once.

    Notes
    -----
    After the warm-up, everything repeats every D v forwards and backwards, and once the forwards are done,
    less is held than in any such round.
    """
    warmup = order.warmup[device]
    numbers = np.arange(min(order.num_forwards, warmup + order.num_devices * order.chunks))
    at_forward = order.forwards_by_chunk(numbers + 1) - order.backwards_by_chunk(np.maximum(0, numbers - warmup))
    forwards = np.minimum(order.num_forwards, warmup + numbers + 1)
    at_backward = order.forwards_by_chunk(forwards) - order.backwards_by_chunk(numbers)
    chunk = numbers // order.num_devices % order.chunks
    held = np.concatenate((at_forward, at_backward))
    distinct = np.unique(np.column_stack((held, np.append(chunk, order.chunks - 1 - chunk))), axis=0)
    return distinct[:, :-1], distinct[:, -1]
