"""Where the parts of a tensor are, for each axis of a mesh: the three words of torch's DTensor."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Shard:
    """Each device of the axis has an equal part of a dimension, in order.

    Axes that shard the same dimension divide it one after another, see `Mesh.division_order`.
    """

    dim: int

    def __str__(self) -> str:
        return f"S({self.dim})"


class Whole(Enum):
    """Tensors of full size on every device of the axis."""

    REPLICATE = "R"
    """Equal ones."""
    PARTIAL = "P"
    """Summands of the tensor."""

    def __str__(self) -> str:
        return self.value


REPLICATE, PARTIAL = Whole.REPLICATE, Whole.PARTIAL
AxisPlacement = Shard | Whole
Placements = tuple[AxisPlacement, ...]
"""One for each axis of the mesh."""
