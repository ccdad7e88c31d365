"""How the operators of a layer run on parts of their tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stagecut.planner.core.operators.operators import Port

if TYPE_CHECKING:
    from torch import Tensor

    Results = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPart:
    """The part of an operator's loop that one device runs."""

    indices: Mapping[str, tuple[int, int]]
    """For each divided dimension: which part, of how many."""
    adds_once: bool = True
    """Whether this device adds what partial sums must hold only once, such as a bias."""

    def start(self, dim: str, size: int) -> int:
        """Index of the first element of this part; each part has `size` elements."""
        return self.indices.get(dim, (0, 1))[0] * size

    def parts(self, dim: str) -> int:
        """Into how many parts a dimension is divided."""
        return self.indices.get(dim, (0, 1))[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorModule:
    """An operator of a layer."""

    run: "Callable[[Any, tuple[Tensor, ...], LoopPart], Results]"
    """Takes the layer, with this device's parts of the operator's weights in place, this device's parts of the inputs
    in the order of the operator's ports, and which part of the loop they belong to."""
    weights: Mapping[str, tuple[str, ...]]
    """Parameters of the layer by name, and the dimensions of each in the operator's names."""
    also: tuple[Port, ...] = ()
    """Inputs that cost nothing and that the planner therefore does not know, such as ids of the model's input."""
    rows: bool = False
    """Whether it makes rows of tokens for experts: it then returns keys and sizes of the rows as well."""
    draws: bool = False
    """Whether it draws random numbers while training."""
