"""Transformer layers of a profile, the smallest unit that some frameworks support."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from stagecut.planner.core.model import Layer, ModelProfile

EMBEDDING, HEAD = "embedding", "head"
FIRST_HALF, SECOND_HALVES = "attention", ("feed-forward", "experts")
WHOLE = ("block", "layer", "transformer")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBlocks:
    """Contents of one stage."""

    embedding: bool
    blocks: tuple[int, ...]
    """Indices of its transformer layers."""
    head: bool


def block_faults(model: ModelProfile, cuts: Sequence[int]) -> tuple[str, ...]:
    """Why stages do not consist of whole transformer layers; empty if they do.

    A model is an embedding, blocks of one layer or of an attention and a feed-forward layer, and a head; any
    part may be missing. Layers are recognised by their kind.
    The cuts are the boundaries of the stages, including both ends.
    """
    units, stranger = _units(model)
    if stranger is not None:
        return (f"layer {stranger.name!r} of kind {stranger.kind!r} is not a known part of a transformer",)
    starts = {first for first, _, _ in units}
    inside = [cut for cut in cuts[1:-1] if cut not in starts]
    names = ", ".join(f"{model.layers[cut - 1].name} | {model.layers[cut].name}" for cut in inside)
    advice = "solve with a profile whose layers are whole blocks"
    return (f"stages end inside a transformer layer, {names}; {advice}",) if inside else ()


def stage_blocks(model: ModelProfile, cuts: Sequence[int]) -> tuple[StageBlocks, ...]:
    """Embedding, transformer layers and head of each stage, provided that :func:`block_faults` finds nothing."""
    units, _ = _units(model)
    return tuple(_stage(units, start, stop) for start, stop in pairwise(cuts))


def _units(model: ModelProfile) -> tuple[list[tuple[int, str, int]], Layer | None]:
    """First layer, role and index of each embedding, block and head, up to the first layer that is none of these."""
    units: list[tuple[int, str, int]] = []
    count = index = 0
    while index < model.num_layers:
        role, length = _role(model.layers, index)
        if role == "":
            return units, model.layers[index]
        units.append((index, role, count))
        count += role == "block"
        index += length
    return units, None


def _role(layers: tuple[Layer, ...], index: int) -> tuple[str, int]:
    """Role of the unit that starts at a layer, and its number of layers; an empty role if it is out of place."""
    kind = layers[index].kind
    if kind in WHOLE:
        return "block", 1
    if kind == FIRST_HALF and index + 1 < len(layers) and layers[index + 1].kind in SECOND_HALVES:
        return "block", 2
    if (kind == EMBEDDING and index == 0) or (kind == HEAD and index == len(layers) - 1):
        return kind, 1
    return "", 0


def _stage(units: list[tuple[int, str, int]], start: int, stop: int) -> StageBlocks:
    own = [(role, number) for first, role, number in units if start <= first < stop]
    return StageBlocks(
        embedding=(EMBEDDING, 0) in own,
        blocks=tuple(number for role, number in own if role == "block"),
        head=any(role == HEAD for role, _ in own),
    )
