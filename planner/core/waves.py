"""Waves: when virtual workers exchange their updates, and how old the weights of a minibatch may be.

HetPipe (USENIX ATC 2020) trains virtual workers through wave-synchronous parallelism. Minibatches are counted from 1,
waves from 0: those of H minibatches each put minibatch p into wave c = (p - 1) // H. A worker pushes one update for
each wave. The *clock* of a copy of the weights is the number of first waves of all workers that it holds.
"""

from dataclasses import dataclass
from enum import StrEnum

from stagecut.planner.core.messages.checks import require, require_count


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

    def num_missing(self, minibatch: int, clock: int, *, other: int) -> int:
        """Earlier minibatches of another worker, with waves of `other` minibatches, that weights of this clock lack.

        Earlier are those that begin before it where all workers go through wave c at constant speeds, from the same
        moment to the same moment: i - 1 of its own wave begin before minibatch i of H, and ceil((i - 1) other / H) of
        the other one's. With equal waves that is all with lower numbers, p - 1 for minibatch p.
        """
        before, inside = divmod(minibatch - 1, self.wave)
        return max(0, (before - clock) * other - (-inside * other // self.wave))

    def global_staleness(self, other: int) -> int:
        """Most minibatches of another worker, with waves of `other`, that the weights of any minibatch may lack.

        With a step after each minibatch that is reached just before a gate: minibatch (c + 1) H - 1 has clock c - 1 - D
        at least, so it may lack (D + 1) other + ceil((H - 2) other / H), and D other for H = 1. With equal waves these
        are (D + 2) H - 2 and D, for H = N_m HetPipe's (D + 1)(s + 1) + s - 1 with s = N_m - 1. With one step a wave the
        last minibatch of a wave may lack D other + ceil((H - 1) other / H). With equal waves that is (D + 1) H - 1, of
        which H - 1 are the own wave's, which no synchronous training has either.
        """
        wave = self.clock_distance + 2  # from here on, all waves are alike
        stalest = (self.gate_of(wave) - 1, (wave + 1) * self.wave)
        return max(self.num_missing(minibatch, self.least_clock(minibatch), other=other) for minibatch in stalest)


def local_staleness(in_flight: int) -> int:
    """Most of a worker's own updates that the weights of its minibatch lack: N_m - 1."""
    return in_flight - 1
