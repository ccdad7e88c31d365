"""Transformer layers of a profile, as frameworks count them that know no smaller unit."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from planner.core.errors import UnsupportedError
from planner.core.model import Layer, ModelProfile

EMBEDDING, HEAD = "embedding", "head"
FIRST_HALF, SECOND_HALVES = "attention", ("feed-forward", "experts")
WHOLE = ("block", "layer", "transformer")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBlocks:
    """What one stage holds."""

    embedding: bool
    blocks: tuple[int, ...]
    """Numbers of its transformer layers."""
    head: bool


def stage_blocks(model: ModelProfile, cuts: Sequence[int], *, target: str) -> tuple[StageBlocks, ...]:
    """Embedding, transformer layers and head of each stage.

    A model is an embedding, blocks of one layer or of an attention and a feed-forward layer, and a head;
    any part may be missing. Layers are known by their kind.

    Parameters
    ----------
    cuts
        Boundaries of the stages, both ends included.

    Raises
    ------
    UnsupportedError
        If the model is made of something else, or a stage ends inside of a block.
    """
    units = _units(model, target)
    starts = {unit[0] for unit in units}
    inside = [cut for cut in cuts[1:-1] if cut not in starts]
    if inside:
        names = ", ".join(f"{model.layers[cut - 1].name} | {model.layers[cut].name}" for cut in inside)
        advice = "plan with a profile that has each block as one layer"
        raise UnsupportedError(
            f"{target} cannot run this plan: stages end inside of a transformer layer, {names}; {advice}"
        )
    return tuple(_stage(units, start, stop) for start, stop in pairwise(cuts))


def num_blocks(stages: Sequence[StageBlocks]) -> int:
    """Transformer layers of the model."""
    return sum(len(stage.blocks) for stage in stages)


def _units(model: ModelProfile, target: str) -> list[tuple[int, str, int]]:
    """First layer, role and number of each embedding, block and head."""
    units: list[tuple[int, str, int]] = []
    count = 0
    index = 0
    while index < model.num_layers:
        role, length = _role(model.layers, index)
        if role == "":
            layer = model.layers[index]
            what = f"layer {layer.name!r} of kind {layer.kind!r} is no part of a transformer that it knows"
            raise UnsupportedError(f"{target} cannot run this plan: {what}")
        units.append((index, role, count))
        count += role == "block"
        index += length
    return units


def _role(layers: tuple[Layer, ...], index: int) -> tuple[str, int]:
    """What begins with a layer, and how many layers it has; no role for what is out of place."""
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
