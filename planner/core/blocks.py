"""Transformer blocks in a chain of layers, recognised by the kinds of the layers."""

from collections.abc import Iterator
from dataclasses import dataclass

from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.model import Layer, ModelProfile

EMBEDDING, HEAD, BLOCK = "embedding", "head", "block"
FIRST_HALF, SECOND_HALVES = "attention", ("feed-forward", "experts")
WHOLE = (BLOCK, "layer", "transformer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The embedding, a transformer block or the head of a model."""

    role: str
    """`EMBEDDING`, `BLOCK` or `HEAD`."""
    start: int
    """Its first layer."""


def units_of(model: ModelProfile) -> tuple[Unit, ...]:
    """The units of a model in order: an embedding, blocks, and a head; the first and the last may be missing.

    A block is one layer, or an attention and a feed-forward layer. Raises an UnsupportedError with the first layer that
    is none of these, or if there is no block.
    """
    units = tuple(_units(model))
    if all(unit.role != BLOCK for unit in units):
        raise UnsupportedError("there is no transformer block")
    return units


def _units(model: ModelProfile) -> Iterator[Unit]:
    index = 0
    while index < model.num_layers:
        role, length = _role(model.layers, index)
        if role == "":
            stranger = model.layers[index]
            raise UnsupportedError(
                f"layer {stranger.name!r} of kind {stranger.kind!r} is not a known part of a transformer"
            )
        yield Unit(role=role, start=index)
        index += length


def _role(layers: tuple[Layer, ...], index: int) -> tuple[str, int]:
    """Role of the unit that starts at a layer, and its number of layers; an empty role if it is out of place."""
    kind = layers[index].kind
    if kind in WHOLE:
        return BLOCK, 1
    if kind == FIRST_HALF and index + 1 < len(layers) and layers[index + 1].kind in SECOND_HALVES:
        return BLOCK, 2
    if (kind == EMBEDDING and index == 0) or (kind == HEAD and index == len(layers) - 1):
        return kind, 1
    return "", 0
