"""Kinds of parallelism inside a stage, by the names that people know; each is a part of the strategies of operators."""

from collections.abc import Collection
from enum import StrEnum

from stagecut.planner.core.operators.operators import SAMPLE, TOKEN, Operator
from stagecut.planner.core.operators.strategy import WHOLE_LOOP, Strategy, WeightStorage

EXPERT, ATTENTION = "expert", "attention"


class Parallelism(StrEnum):
    """What a job may allow operators to be divided by, and weights to be stored in."""

    DATA = "data"
    """Samples."""
    TENSOR = "tensor"
    """Heads, widths, channels, vocabularies, and partial sums of them."""
    SEQUENCE = "sequence"
    """Tokens, but not those of an attention core."""
    CONTEXT = "context"
    """Tokens everywhere; keys and values are gathered."""
    EXPERTS = "experts"
    ZERO1 = "zero1"
    """Samples, with the optimizer state in parts."""
    ZERO2 = "zero2"
    """Samples, with gradients in parts too."""
    FSDP = "fsdp"
    """Samples, with weights in parts too (ZeRO-3)."""


_P = Parallelism
STORED = {WeightStorage.OPTIMIZER: _P.ZERO1, WeightStorage.GRADIENTS: _P.ZERO2, WeightStorage.WEIGHTS: _P.FSDP}
"""Kinds by what they store in parts."""
_OF_SAMPLES = frozenset({_P.DATA, *STORED.values()})


def allows(kinds: Collection[Parallelism], operator: Operator, strategy: Strategy) -> bool:
    """Whether a strategy of an operator needs none but these kinds of parallelism.

    What is not divided is always allowed, and so are weights stored whole.
    """
    storage = strategy.storage
    if storage is not WeightStorage.REPLICATED and STORED[storage] not in kinds:
        return False
    return all(split == WHOLE_LOOP or not _kinds_of(operator, split).isdisjoint(kinds) for split in strategy.splits)


def _kinds_of(operator: Operator, split: str) -> frozenset[Parallelism]:
    """Kinds of parallelism of which each divides the operator's loop like this."""
    if split == SAMPLE:
        return _OF_SAMPLES
    if split == TOKEN:
        return frozenset({_P.CONTEXT} if operator.kind == ATTENTION else {_P.CONTEXT, _P.SEQUENCE})
    return frozenset({_P.EXPERTS if split == EXPERT else _P.TENSOR})
