"""Collectives along one axis of a mesh."""

from enum import StrEnum


class Collective(StrEnum):
    """A collective; tensors are counted as the larger of what a device has before and after it."""

    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_REDUCE = "all-reduce"
    ALL_TO_ALL = "all-to-all"


def ring_steps(collective: Collective, size: int) -> int:
    """Steps of a ring of so many devices; in each, every device sends 1 / size of the tensor."""
    return (2 if collective is Collective.ALL_REDUCE else 1) * (size - 1)


def sent_bytes(collective: Collective, size: int, num_bytes: float) -> float:
    """Bytes that each device sends, for a tensor of so many bytes."""
    return ring_steps(collective, size) * num_bytes / size
