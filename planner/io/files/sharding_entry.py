"""How a plan file says in which way the operators of a stage are divided: layers divided alike are written once."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.model import Layer
from stagecut.planner.core.operators.operators import PARTIAL, WHOLE
from stagecut.planner.core.operators.strategy import (
    PARTIAL_SUMS,
    WHOLE_LOOP,
    LayerStrategy,
    StageSharding,
    Strategy,
    WeightStorage,
)
from stagecut.planner.io.documents.canonical import Tree
from stagecut.planner.io.documents.fields import Count, Entry, Index, Key, Name

WORDS = {WHOLE_LOOP: WHOLE, PARTIAL_SUMS: PARTIAL}
"""What a file calls the splits that are no dimensions."""
_SPLITS = {word: split for split, word in WORDS.items()}
Storage = Annotated[WeightStorage, Field(strict=False)]
Splits = Annotated[list[Name], Field(max_length=3)]


class AlikeLayersEntry(Entry):
    """Layers whose operators are divided alike."""

    layers: Annotated[list[Index], Field(min_length=1)]
    """Their indices in the model, from 0."""
    operators: dict[Key, Splits]
    """For each operator, and each axis of the mesh: the dimension that is divided, or the words whole or partial."""
    storage: dict[Key, Storage] = Field(default_factory=dict)
    """Operators of whose weights, gradients or optimizer state each device holds a part: optimizer (ZeRO-1), gradients
    (ZeRO-2) or weights (FSDP)."""


class ShardingEntry(Entry):
    """How the devices of a replica divide each operator."""

    mesh: Annotated[list[Count], Field(max_length=3)]
    """Devices along each axis; the last axis is the fastest in the order of the devices."""
    layers: Annotated[list[AlikeLayersEntry], Field(min_length=1)]
    """Every layer of the stage, once."""


def sharding_of(entry: ShardingEntry, layers: Sequence[Layer], *, start: int) -> StageSharding:
    """The sharding of a checked entry, for the layers of its stage, the first of which has index `start`."""
    by_layer = {index: alike for alike in entry.layers for index in alike.layers}
    strategies = (_layer_strategy(by_layer[index], layer) for index, layer in enumerate(layers, start=start))
    return StageSharding(mesh=tuple(entry.mesh), layers=tuple(strategies))


def strategy_of(entry: AlikeLayersEntry, operator: str) -> Strategy:
    """The strategy of an operator of these layers."""
    splits = tuple(_SPLITS.get(word, word) for word in entry.operators[operator])
    return Strategy(splits=splits, storage=entry.storage.get(operator, WeightStorage.REPLICATED))


def sharding_tree(sharding: StageSharding, layers: Sequence[Layer], *, start: int) -> Tree:
    """The inverse of :func:`sharding_of`."""
    alike: dict[tuple[tuple[str, Strategy], ...], list[int]] = {}
    for index, (layer, strategy) in enumerate(zip(layers, sharding.layers, strict=True), start=start):
        names = (operator.name for operator in operators_of(layer))
        alike.setdefault(tuple(zip(names, strategy.operators, strict=True)), []).append(index)
    return {"mesh": list(sharding.mesh), "layers": [_alike_tree(indices, own) for own, indices in alike.items()]}


def _layer_strategy(entry: AlikeLayersEntry, layer: Layer) -> LayerStrategy:
    return LayerStrategy(operators=tuple(strategy_of(entry, operator.name) for operator in operators_of(layer)))


def _alike_tree(indices: list[int], operators: tuple[tuple[str, Strategy], ...]) -> Tree:
    tree: dict[str, object] = {
        "layers": indices,
        "operators": {name: [WORDS.get(split, split) for split in own.splits] for name, own in operators},
    }
    storage = {name: str(own.storage) for name, own in operators if own.storage is not WeightStorage.REPLICATED}
    return tree | ({"storage": storage} if storage else {})  # type: ignore[return-value]
