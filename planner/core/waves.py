"""Waves: when virtual workers exchange their updates, and how old the weights of a minibatch may be.

HetPipe (USENIX ATC 2020) trains virtual workers through wave-synchronous parallelism. Minibatches are counted from 1,
waves from 0: those of H minibatches each put minibatch p into wave c = (p - 1) // H. A worker pushes one update for
each wave. The *clock* of a copy of the weights is the number of first waves of all workers that it holds.
"""

from dataclasses import dataclass
from enum import StrEnum

from stagecut.planner.core.checks import require, require_count


class LocalStep(StrEnum):
    """When a virtual worker updates its own weights."""

    MINIBATCH = "minibatch"
    """After each minibatch (HetPipe): some are in flight with older weights, and nothing is flushed."""
    WAVE = "wave"
    """Once a wave, from the gradients of all its minibatches: a flush, as in synchronous training."""


class Carrier(StrEnum):
    """What carries updates between virtual workers."""

    PARAMETER_SERVER = "parameter-server"
    DELAYED_ALL_REDUCE = "delayed-all-reduce"


class ShardPlacement(StrEnum):
    """Which hosts' parameter servers own which layers."""

    SPREAD = "spread"
    """All hosts own about the same number of bytes."""
    LOCAL = "local"
    """Each layer belongs to the host on which most workers hold it, so that little crosses the network."""


class Allocation(StrEnum):
    """How the devices are divided among virtual workers."""

    NODE_PARTITION = "np"
    """Each worker has a host of its own."""
    EQUAL_DISTRIBUTION = "ed"
    """Each worker has a device of every host."""
    HYBRID = "hd"
    """Each worker has devices of two hosts, the fastest joined with the slowest."""
    OPTIMAL = "optimal"
    """Whatever gives the most samples per second, with a bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveRule:
    """When a worker has to wait for the others.

    Some minibatch of every wave c is its *gate*: it does not start before the worker's weights have the clock c - D,
    that is, before every worker has pushed waves 0 .. c - 1 - D. With a step after each minibatch that is the last one
    of the wave; with one step a wave it is the first one, which no other minibatch of the worker is in flight with.
    """

    wave: int
    """Minibatches H of a wave."""
    clock_distance: int
    """D: how many waves a worker may be ahead of the slowest one."""
    local_step: LocalStep = LocalStep.MINIBATCH

    def __post_init__(self) -> None:
        require_count("wave", "minibatches", self.wave)
        require(self.clock_distance >= 0, "plan", "clock_distance", "at least 0", self.clock_distance)

    def wave_of(self, minibatch: int) -> int:
        """The wave c of a minibatch."""
        return (minibatch - 1) // self.wave

    def gate_of(self, wave: int) -> int:
        """The minibatch of a wave that waits for the others."""
        return wave * self.wave + (1 if self.local_step is LocalStep.WAVE else self.wave)

    def is_gate(self, minibatch: int) -> bool:
        """Whether a minibatch waits for the others."""
        return minibatch == self.gate_of(self.wave_of(minibatch))

    def is_last(self, minibatch: int) -> bool:
        """Whether a wave ends with this minibatch."""
        return minibatch % self.wave == 0

    def least_clock(self, minibatch: int) -> int:
        """Clock that the weights of a minibatch have at least: that of the last gate passed."""
        wave = self.wave_of(minibatch)
        return max(0, wave - self.clock_distance - (minibatch < self.gate_of(wave)))

    def num_missing(self, minibatch: int, clock: int) -> int:
        """Earlier minibatches of another worker, at most, that weights of this clock lack."""
        return max(0, minibatch - 1 - clock * self.wave)

    @property
    def global_staleness(self) -> int:
        """Most minibatches of another worker that the weights of any minibatch lack.

        With a step after each minibatch (D + 2) H - 2, reached just before a gate: minibatch (c + 1) H - 1 has clock
        c - 1 - D at least. For H = N_m that is HetPipe's (D + 1)(s + 1) + s - 1 with s = N_m - 1. With one step a
        wave (D + 1) H - 1, of which H - 1 are the own wave's, which no synchronous training has either.
        """
        if self.local_step is LocalStep.WAVE:
            return (self.clock_distance + 1) * self.wave - 1
        return max(0, (self.clock_distance + 2) * self.wave - 2)


def local_staleness(in_flight: int) -> int:
    """Most of a worker's own updates that the weights of its minibatch lack: N_m - 1."""
    return in_flight - 1
