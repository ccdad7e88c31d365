"""A model as a chain of torch modules, each built only when and where it is needed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from stagecut.models.modules.operators import OperatorModule
from stagecut.planner.core.messages.checks import require, require_count, require_distinct

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.distributed.tensor.parallel import ParallelStyle

    Tensors: TypeAlias = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerModule:
    """One layer: a module on tensors whose dimension 0 counts samples."""

    name: str
    """Name in the model's profile, for example "block5.attention"."""
    build: Callable[[], "nn.Module"]
    """Makes a new layer, initialised with torch's current generator."""
    tensor_parallel: Callable[[], Mapping[str, "ParallelStyle"]] | None = None
    """Styles by submodule name, for `parallelize_module`; None: no support for tensor parallelism."""
    divisible: int | None = None
    """What the tensor-parallel degree must divide: heads, key heads, width ...; None: any degree is allowed."""
    operators: Mapping[str, OperatorModule] | None = None
    """How its operators run on parts of their tensors, by name; None: the layer runs as a whole, on some samples."""

    def __post_init__(self) -> None:
        if self.divisible is not None:
            require_count(f"layer {self.name!r}", "divisible", self.divisible)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """Weights shared by two layers, each given by a layer index and the parameter's name in that layer."""

    owner: tuple[int, str]
    copy: tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLoss:
    """A mean over something other than samples, such as tokens that are not padding; called like any other loss.

    Parts of a batch may have unequal counts: the mean over the batch is the sum of its parts' contributions, not their
    mean.
    """

    part: Callable[[Any, Any, Any], "Tensor"]
    """Maps outputs, their targets and the count of the whole batch to what these samples contribute to the mean."""
    count: Callable[[Any], Any]
    """Maps the targets of the whole batch to a count, or several."""
    part_with: Callable[[Any], Callable[[Any, Any, Any], "Tensor"]] | None = None
    """Makes `part` of another cross entropy, such as one over divided classes; None: it consists of something else."""

    def __call__(self, output: object, targets: object) -> "Tensor":
        """The mean over the samples given."""
        return self.part(output, targets, self.count(targets))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleChain:
    """A model as layers that are called one after another.

    The state between two layers is a tuple of tensors. A layer is called `module(*state)` and returns a tensor
    or a tuple; skip edges are further tensors of the state.
    """

    name: str
    layers: tuple[LayerModule, ...]
    ties: tuple[Tie, ...] = ()
    loss: Callable[..., "Tensor"] | None
    """Maps the last layer's output and the targets to the mean over these samples, equally weighted unless it is a
    `CountedLoss`."""
    batch: "Callable[[int, torch.Generator], tuple[Tensors, Tensors]] | None"
    """Random inputs and targets for so many samples."""
    stands_in: bool = False
    """Whether the layers only take the place of others, so that devices have nothing to divide."""

    def __post_init__(self) -> None:
        owner = f"model {self.name!r}"
        require_distinct(owner, "layer names", (layer.name for layer in self.layers))
        for tie in self.ties:
            for place, _ in (tie.owner, tie.copy):
                require(0 <= place < len(self.layers), owner, "tie", f"inside 0..{len(self.layers) - 1}", place)
