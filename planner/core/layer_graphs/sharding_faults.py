"""Why an operator cannot be divided as a strategy says."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from math import prod

from stagecut.planner.core.operators.operators import Operator
from stagecut.planner.core.operators.strategy import PARTIAL_SUMS, WHOLE_LOOP, Strategy, WeightStorage


def strategy_faults(operator: Operator, strategy: Strategy, mesh: tuple[int, ...], *, samples: int) -> Iterator[str]:
    """Every reason, in words that follow the name of the operator; none for a legal strategy.

    `samples` are those of a micro-batch of the whole mesh.
    """
    for size, split in zip(mesh, strategy.splits, strict=True):
        if fault := _split_fault(operator, split, size):
            yield fault
    for known in operator.splits:
        parts = prod(size for size, split in zip(mesh, strategy.splits, strict=True) if split == known.dim)
        size, what = (samples, "samples of a replica") if known.size is None else (known.size, f"of {known.dim!r}")
        if size % parts:
            yield f"cannot be divided along {known.dim!r}: {parts} devices do not divide the {size} {what}"
    if strategy.storage is not WeightStorage.REPLICATED and not _sums_gradients(operator, strategy):
        reason = "no devices have the same weights and gradients to be summed"
        yield f"cannot store parts of its {strategy.storage}: {reason}"


def partial_faults(operators: Sequence[Operator], strategies: Sequence[Strategy]) -> Iterator[tuple[str, str]]:
    """Operators of a layer that take partial sums where there are none, each with its name.

    Nothing becomes a partial sum on its way from one operator to the next; all else can be converted.
    """
    partial: dict[str, set[int]] = {}
    for operator, strategy in zip(operators, strategies, strict=True):
        for axis in (axis for axis, split in enumerate(strategy.splits) if split == PARTIAL_SUMS):
            for port in operator.inputs:
                if axis not in partial.get(port.tensor, ()):
                    yield operator.name, f"cannot compute with partial sums along axis {axis}: {port.tensor!r} is none"
        for tensor in operator.outputs:
            summed = (axis for axis, split in enumerate(strategy.splits) if split not in (WHOLE_LOOP, *tensor.dims))
            partial[tensor.name] = set(summed)


def _split_fault(operator: Operator, split: str, size: int) -> str:
    known = [own.dim for own in operator.splits]
    if split == WHOLE_LOOP:
        return ""
    if split == PARTIAL_SUMS:
        if not operator.passes_partial:
            return "cannot compute with partial sums"
    elif split not in known:
        near = get_close_matches(split, known, n=1)
        hint = f", did you mean {near[0]!r}?" if near else f", accepted: {', '.join(known) or 'none'}"
        return f"has no dimension {split!r} to be divided along{hint}"
    return "cannot be divided along an axis of 1 device" if size == 1 else ""


def _sums_gradients(operator: Operator, strategy: Strategy) -> bool:
    """Whether devices along some axis have the same part of a weight, and summands of its gradient."""
    divided = [split for split in strategy.splits if split != WHOLE_LOOP]
    return any(split not in weight.dims for weight in operator.weights for split in divided)
