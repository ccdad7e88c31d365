"""Placements under the strategies of the catalogue as Markdown: `python -m stagecut.models.strategy_table`."""

from collections.abc import Iterator, Sequence

from stagecut.models.catalogue import build_model
from stagecut.planner.core.operators.operators import SAMPLE, TOKEN, Operator
from stagecut.planner.core.operators.parallelism import ATTENTION, EXPERT
from stagecut.planner.core.operators.strategy import PARTIAL_SUMS
from stagecut.planner.sharding.placements import PARTIAL, Placements, Shard
from stagecut.planner.sharding.strategies import (
    input_gradient_placements,
    input_placements,
    output_placements,
    weight_gradient_placements,
    weight_placements,
)

SHOWN = (
    ("gpt2-345m", "embedding", ("tokens",)),
    ("gpt2-345m", "block0.attention", ("norm", "qkv", "attention", "project", "residual")),
    ("gpt2-345m", "head", ("loss",)),
    ("mixtral-8x7b", "block0.experts", ("router", "dispatch", "gate and up", "down", "combine")),
    ("resnet50", "stem", ("convolution", "convolution norm")),
)
"""Model, layer and operators; the others are divided like one of these."""
HEAD = ("operator", "divided along", "takes", "weights", "leaves", "gradients left partial")


def strategy_table() -> str:
    """A row for each operator and each dimension but the samples."""
    rows = [row for model, layer, names in SHOWN for row in _rows(model, layer, names)]
    return "".join(f"| {' | '.join(row)} |\n" for row in (HEAD, ("---",) * len(HEAD), *rows))


def _rows(model: str, layer_name: str, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    layers = {layer.name: layer for layer in build_model(model).layers}
    for operator in layers[layer_name].operators:
        if operator.name in names:
            dims = [split.dim for split in operator.splits if split.dim != SAMPLE]
            for dim in (*dims, *((PARTIAL_SUMS,) if operator.passes_partial else ())):
                yield _row(operator, dim)


def _row(operator: Operator, dim: str) -> tuple[str, ...]:
    splits = (dim,)
    partial = [port.tensor for port in operator.inputs if PARTIAL in input_gradient_placements(port, splits)]
    partial += [own.name for own in operator.weights if PARTIAL in weight_gradient_placements(own, splits)]
    return (
        f"{operator.name} ({operator.kind})",
        f"{'partial sums' if dim == PARTIAL_SUMS else dim}: {_known_as(operator, dim)}",
        _listed((own.tensor, own.dims, input_placements(own, splits)) for own in operator.inputs),
        _listed((own.name, own.dims, weight_placements(own, splits)) for own in operator.weights),
        _listed((own.name, own.dims, output_placements(own, splits)) for own in operator.outputs),
        ", ".join(partial),
    )


def _known_as(operator: Operator, dim: str) -> str:
    if dim == TOKEN:
        return "context" if operator.kind == ATTENTION else "sequence"
    return "experts" if dim == EXPERT else "tensor"


def _listed(tensors: Iterator[tuple[str, tuple[str, ...], Placements]]) -> str:
    return ", ".join(f"{name} {_shown(dims, own)}" for name, dims, (own,) in tensors)


def _shown(dims: tuple[str, ...], own: object) -> str:
    return f"S({dims[own.dim]})" if isinstance(own, Shard) else str(own)


if __name__ == "__main__":
    print(strategy_table(), end="")
