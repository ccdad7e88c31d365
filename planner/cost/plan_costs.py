"""A plan in numbers: what the simulator, the bounds and the memory check are given."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.core.problem import Variant

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCosts:
    """Costs of one pipeline of S stages, per micro-batch and per device of a stage.

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
    """Kept per micro-batch in flight, on each device, shape (S,)."""
    working_bytes: Floats
    """On top while a micro-batch is computed, shape (S,)."""
    limit_bytes: Floats
    """Memory of each device, shape (S,)."""

    @property
    def num_stages(self) -> int:
        """S."""
        return len(self.forward_s)

    @property
    def memory_bytes(self) -> Floats:
        """High-water mark of each stage: static + k * saved + working, shape (S,)."""
        return self.static_bytes + self.warmup_depth * self.saved_bytes + self.working_bytes
