"""The costs of a plan: input of the simulator, the bounds and the memory check."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from stagecut.planner.core.interleaving import Interleaving, in_flight
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import Schedule


class TaskKind(IntEnum):
    """What a task of an iteration does."""

    FORWARD = 0
    BACKWARD = 1
    SEND_FORWARD = 2
    SEND_BACKWARD = 3
    SYNC = 4
    UPDATE = 5


OwnTimes = Mapping[tuple[TaskKind, int, int], float]
"""Seconds of actions and messages that are no whole micro-batch, by kind, stage (the sender's) and samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SublotCut:
    """How the processes of a pipeline of S stages cut its samples, each in sublots of its own size."""

    num_samples: int
    forward: tuple[int, ...]
    """Samples per forward of each stage."""
    backward: tuple[int, ...]
    """Samples per backward of each stage."""
    forward_messages: tuple[int | None, ...]
    """Samples per message over each of the S - 1 boundaries; None: the part of one action that one action takes."""
    backward_messages: tuple[int | None, ...]
    in_flight: tuple[int, ...]
    """Samples that each stage forwards before its first backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sublots:
    """Sublot sizes of the processes, and the seconds of every sublot."""

    cut: SublotCut
    seconds: OwnTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    """Half micro-batches in a pipeline of S stages (AutoPipe, CLUSTER 2022).

    Two halves take no less than the whole, on which the lower bounds rest (docs/bounds.md).
    """

    forward_s: Floats
    """Half a forward, shape (S,); infinite where the replicas of a stage cannot share half a micro-batch."""
    transfer_s: Floats
    """Half a message over each boundary, shape (S - 1,)."""
    num_halved: Ints
    """How many of the first micro-batches each stage forwards in halves, shape (S,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCosts:
    """Costs of one pipeline of S stages, per micro-batch and per device of a stage.

    Stages share device groups under `interleaved`: with v chunks there are D = S / v of them, and
    stage s runs on device group s mod D.

    Links are named; transfers that name the same link queue for it. A transfer takes its place in
    the queue of every link on its route.
    """

    variant: Variant
    warmup_depth: Ints
    """k, shape (S,)."""
    forward_s: Floats
    """F, shape (S,)."""
    backward_s: Floats
    """B, recomputation included, shape (S,)."""
    transfer_s: Floats
    """c between stages s and s + 1, one way, the same for activations and gradients, shape (S - 1,)."""
    forward_links: tuple[tuple[str, ...], ...]
    """Route of the activations over each of the S - 1 boundaries."""
    backward_links: tuple[tuple[str, ...], ...]
    """Route of the gradients over each of the S - 1 boundaries."""
    sync_s: Floats
    """Gradient all-reduce over the replicas of a stage, after its last backward, shape (S,)."""
    sync_links: tuple[tuple[str, ...], ...]
    """Links the all-reduce of each stage occupies."""
    update_s: Floats
    """Optimizer step after the all-reduce, shape (S,)."""
    static_bytes: Floats
    """Weights, gradients and optimizer state on each device, shape (S,)."""
    saved_bytes: Floats
    """Bytes kept per micro-batch in flight on each device, shape (S,)."""
    working_bytes: Floats
    """Additional bytes on each device while a micro-batch is computed, shape (S,)."""
    limit_bytes: Floats
    """Memory of each device, shape (S,)."""
    halves: Halves | None = None
    """Present if the plan halves micro-batches, or its job allows it to."""
    sublots: Sublots | None = None
    """Present if processes have sublot sizes of their own."""

    @property
    def num_stages(self) -> int:
        """S."""
        return len(self.forward_s)

    @property
    def num_devices(self) -> int:
        """D: one device group per stage, unless stages share them."""
        return self.num_stages // self.variant.chunks

    @property
    def interleaving(self) -> Interleaving | None:
        """Order of the actions where stages share device groups; None under every other schedule."""
        if self.variant.schedule is not Schedule.INTERLEAVED:
            return None
        return Interleaving(
            num_devices=self.num_devices,
            chunks=self.variant.chunks,
            num_microbatches=self.variant.num_microbatches,
        )

    @property
    def num_halved(self) -> tuple[int, ...]:
        """Micro-batches that each stage forwards in halves; empty if none does."""
        return () if self.halves is None or not self.halves.num_halved.any() else tuple(self.halves.num_halved.tolist())

    @property
    def own_s(self) -> OwnTimes:
        """Seconds of the actions and messages that are no whole micro-batch."""
        if self.sublots is not None:
            return self.sublots.seconds
        if self.halves is None or not self.num_halved:
            return {}
        half = self.variant.micro_batch // 2
        forwards = {(TaskKind.FORWARD, s, half): time for s, time in enumerate(self.halves.forward_s.tolist())}
        messages = {(TaskKind.SEND_FORWARD, s, half): time for s, time in enumerate(self.halves.transfer_s.tolist())}
        return forwards | messages

    def sliced(self, num_sliced: int) -> "PlanCosts":
        """The same plan with another sliced warm-up count; unchanged where nothing can be halved."""
        if self.halves is None:
            return self
        num_halved = np.where(np.isfinite(self.halves.forward_s), np.minimum(num_sliced, self.warmup_depth), 0)
        return replace(self, halves=replace(self.halves, num_halved=num_halved))

    @property
    def memory_bytes(self) -> Floats:
        """High-water mark of the devices of each stage, shape (S,).

        Notes
        -----
        Stages with devices of their own: static + k * saved + working. Stages that share devices: the
        static bytes of all of them and, at its largest over the actions of the device group, the sum of
        saved * micro-batches in flight plus the working bytes of the action's stage.
        """
        order = self.interleaving
        if order is None:
            return self.static_bytes + self.warmup_depth * self.saved_bytes + self.working_bytes
        return shared_bytes(order, self.static_bytes, self.saved_bytes, self.working_bytes)


def shared_bytes(order: Interleaving, static_bytes: Floats, saved_bytes: Floats, working_bytes: Floats) -> Floats:
    """High-water mark of the devices of each stage where stages share devices, shape (S,).

    The arguments are those of the stages, shape (S,) each; see :attr:`PlanCosts.memory_bytes`.
    """

    def of_group(device: int) -> float:
        stages = slice(device, None, order.num_devices)
        held, chunk = in_flight(order, device)
        saved, working = held @ saved_bytes[stages], working_bytes[stages][chunk]
        return float(np.sum(static_bytes[stages]) + np.max(saved + working))

    return np.tile([of_group(device) for device in range(order.num_devices)], order.chunks)
