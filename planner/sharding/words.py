"""How a layer is divided, in the words that people use: `tensor 4, sequence`, `FSDP 8`, `data 2 x experts 4`."""

from collections.abc import Sequence

from stagecut.planner.core.operators.operators import SAMPLE, TOKEN, Operator
from stagecut.planner.core.operators.parallelism import ATTENTION, EXPERT
from stagecut.planner.core.operators.strategy import WHOLE_LOOP, LayerStrategy, Strategy, WeightStorage
from stagecut.planner.sharding.placements import PARTIAL
from stagecut.planner.sharding.strategies import weight_gradient_placements

DATA, CONTEXT, EXPERTS, TENSOR, SEQUENCE = "data", "context", "experts", "tensor", "sequence"
REPLICATED = "replicated"
"""Of an axis whose devices all compute the same."""
STORAGES = {WeightStorage.OPTIMIZER: "ZeRO-1", WeightStorage.GRADIENTS: "ZeRO-2", WeightStorage.WEIGHTS: "FSDP"}


def layer_words(operators: Sequence[Operator], layer: LayerStrategy, mesh: tuple[int, ...]) -> str:
    """The strategies of a layer in words, such as `data 2 x tensor 4, sequence`.

    - Each axis of the mesh has a word for what its devices divide, in brief: `tensor` is every dimension of the model,
      `context` the tokens of all operators or those of attention. Axes of the same word are counted together, and
      different words for the operators of a layer are joined by `+`.
    - `sequence`: other operators than attention are divided by tokens, beside what the words say.
    - If most bytes of the weights are stored in parts: ZeRO-1, ZeRO-2 or FSDP, in place of `data` where samples are
      divided.
    - A mesh without axes has no words.
    """
    pairs = list(zip(operators, layer.operators, strict=True))
    sizes: dict[str, int] = {}
    extras: dict[str, None] = {}
    for axis, size in enumerate(mesh):
        word, *others = _axis_words(pairs, axis)
        sizes[word] = sizes.get(word, 1) * size
        extras.update(dict.fromkeys(others))
    grid = " x ".join(f"{word} {size}" for word, size in sizes.items())
    return ", ".join((grid, *(word for word in extras if word not in sizes)))


def stage_words(
    layers: Sequence[Sequence[Operator]], strategies: Sequence[LayerStrategy], mesh: tuple[int, ...]
) -> str:
    """The words of a stage's layers: those of the most layers first, and how many layers have each if they differ."""
    counts: dict[str, int] = {}
    for operators, strategy in zip(layers, strategies, strict=True):
        words = layer_words(operators, strategy, mesh)
        counts[words] = counts.get(words, 0) + 1
    if len(counts) == 1:
        return next(iter(counts))
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    return "; ".join(f"{words} ({count})" for words, count in ranked)


def _axis_words(pairs: Sequence[tuple[Operator, Strategy]], axis: int) -> tuple[str, ...]:
    """What the devices of an axis divide, and what is to be added once for the layer."""
    found = {_word(operator, strategy.splits[axis]) for operator, strategy in pairs}
    if found == {SEQUENCE} and all(operator.kind != ATTENTION for operator, _ in pairs):
        found = {CONTEXT}
    divided = [word for word in (DATA, CONTEXT, EXPERTS, TENSOR) if word in found]
    beside = [SEQUENCE] if SEQUENCE in found and CONTEXT not in found else []
    stored = _stored(pairs, axis)
    if divided == [DATA] and stored:
        return (*stored, *beside)
    if not divided:
        return (*(beside or [REPLICATED]), *stored)
    return ("+".join(divided), *beside, *stored)


def _word(operator: Operator, split: str) -> str:
    if split == WHOLE_LOOP:
        return REPLICATED
    if split == TOKEN:
        return CONTEXT if operator.kind == ATTENTION else SEQUENCE
    return {SAMPLE: DATA, EXPERT: EXPERTS}.get(split, TENSOR)


def _stored(pairs: Sequence[tuple[Operator, Strategy]], axis: int) -> tuple[str, ...]:
    """How most bytes of the layer's weights are stored over the axis, if in parts."""
    num_bytes: dict[str, float] = {}
    for operator, strategy in pairs:
        for weight in operator.weights:
            summed = weight_gradient_placements(weight, strategy.splits)[axis] is PARTIAL
            word = STORAGES.get(strategy.storage, "") if summed else ""
            num_bytes[word] = num_bytes.get(word, 0.0) + weight.num_bytes
    word = max(num_bytes, key=lambda word: num_bytes[word], default="")
    return (word,) if word else ()
