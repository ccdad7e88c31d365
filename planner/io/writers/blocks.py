"""Transformer blocks of the stages of a plan, the smallest unit that some frameworks support."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from stagecut.planner.core.blocks import BLOCK, EMBEDDING, HEAD, Unit, units_of
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.model import ModelProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBlocks:
    """Contents of one stage."""

    embedding: bool
    blocks: tuple[int, ...]
    """Indices of its transformer layers."""
    head: bool


def block_faults(model: ModelProfile, cuts: Sequence[int], *, framework: str) -> tuple[str, ...]:
    """Why stages do not consist of whole transformer layers; empty if they do.

    The cuts are the boundaries of the stages, including both ends; `framework` is that of `plan solve --for`.
    """
    try:
        starts = {unit.start for unit in units_of(model)}
    except UnsupportedError as error:
        return error.complaints
    inside = [cut for cut in cuts[1:-1] if cut not in starts]
    names = ", ".join(f"{model.layers[cut - 1].name} | {model.layers[cut].name}" for cut in inside)
    advice = f"solve with --for {framework}"
    return (f"stages end inside a transformer layer, {names}; {advice}",) if inside else ()


def stage_blocks(model: ModelProfile, cuts: Sequence[int]) -> tuple[StageBlocks, ...]:
    """Embedding, transformer layers and head of each stage, provided that :func:`block_faults` finds nothing."""
    units = units_of(model)
    return tuple(_stage(units, start, stop) for start, stop in pairwise(cuts))


def _stage(units: Sequence[Unit], start: int, stop: int) -> StageBlocks:
    own = [unit.role for unit in units if start <= unit.start < stop]
    before = sum(unit.role == BLOCK for unit in units if unit.start < start)
    return StageBlocks(
        embedding=EMBEDDING in own,
        blocks=tuple(range(before, before + own.count(BLOCK))),
        head=HEAD in own,
    )
