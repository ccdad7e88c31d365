"""A model as a chain of torch modules, each built when and where it is needed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from stagecut.planner.core.checks import require, require_count, require_distinct

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.distributed.tensor.parallel import ParallelStyle

    Tensors: TypeAlias = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerModule:
    """One layer: a function of tensors whose dimension 0 counts samples, with weights of its own."""

    name: str
    """As in the model's profile, for example "block5.attention"."""
    build: Callable[[], "nn.Module"]
    """A fresh layer, its weights drawn from torch's current generator."""
    tensor_parallel: Callable[[], Mapping[str, "ParallelStyle"]] | None = None
    """Styles by submodule name, for `parallelize_module`; None: devices cannot share the layer."""
    divisible: int | None = None
    """The tensor-parallel degree must divide this: heads, key heads, width ...; None: any degree will do."""

    def __post_init__(self) -> None:
        if self.divisible is not None:
            require_count(f"layer {self.name!r}", "divisible", self.divisible)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """Weights that two layers hold in common; each place is a layer's index and a parameter's name inside it."""

    owner: tuple[int, str]
    copy: tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLoss:
    """A mean over something else than samples, such as tokens that are not padding; called like any other loss.

    Parts of a batch may have unequal counts: the mean over the batch is the sum of what its parts give, not their mean.
    """

    part: Callable[[Any, Any, Any], "Tensor"]
    """Of outputs, their targets and the count of the whole batch: what these samples add to the mean."""
    count: Callable[[Any], Any]
    """From the targets of the whole batch: a number, or several."""

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
    """Of the last layer's output and the targets: the mean over the samples given, every sample weighing the same
    unless it is a `CountedLoss`."""
    batch: "Callable[[int, torch.Generator], tuple[Tensors, Tensors]] | None"
    """Random inputs and targets for that many samples."""

    def __post_init__(self) -> None:
        owner = f"model {self.name!r}"
        require_distinct(owner, "layer names", (layer.name for layer in self.layers))
        for tie in self.ties:
            for place, _ in (tie.owner, tie.copy):
                require(0 <= place < len(self.layers), owner, "tie", f"inside 0..{len(self.layers) - 1}", place)
