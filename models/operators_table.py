"""The operators of every kind of layer of the catalogue, as rows of a table."""

from collections.abc import Iterator

from stagecut.models.families.entry import ModelEntry
from stagecut.planner.core.model import Layer
from stagecut.planner.core.operators.operators import Operator
from stagecut.planner.core.precision import Precision

HEADER = ("layer", "as in", "operators, and along what each is divided")


def operator_rows(entries: tuple[ModelEntry, ...]) -> Iterator[tuple[str, str, str]]:
    """One row for each set of operators, with the first model that has it."""
    seen = set()
    for entry in entries:
        for layer in entry.profile(precision=Precision.FP16, sequence_length=None).layers:
            key = (layer.kind, frozenset(map(_label, layer.operators)))
            if layer.operators and key not in seen:
                seen.add(key)
                yield layer.kind, f"`{entry.name}`", _cell(layer)


def _cell(layer: Layer) -> str:
    return "<br>".join(map(_label, layer.operators))


def _label(operator: Operator) -> str:
    return f"{operator.name}: {', '.join(_along(operator, split.dim) for split in operator.splits)}"


def _along(operator: Operator, dim: str) -> str:
    return dim if dim in operator.outputs[0].dims or operator.kind == "loss" else f"{dim} (+)"
