"""Random models.

`synthetic:SEED:LAYERS`, for example `synthetic:7:24`; `synthetic:7` has 16 layers, `synthetic` the seed 0. The same
name gives the same model everywhere. Each count is drawn independently and log-uniformly, so that layers differ by
more than those of a real model:

- parameters `10^5 .. 10^7.5`, forward FLOPs `10^9 .. 10^11`, output `10^4.5 .. 10^6` elements
- saved: the input, and `10^5 .. 10^6.5` further elements
- working: twice the input and the output
"""

import random
from dataclasses import dataclass

from stagecut.models.families.chain import Chain, LayerCounts
from stagecut.models.families.entry import ModelEntry
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.messages.errors import BadInputError

NAME = "synthetic"
DEFAULT_SEED = 0
DEFAULT_LAYERS = 16
MAX_LAYERS = 10_000
LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticShape:
    """The parameters of a random model."""

    seed: int
    num_layers: int


def is_synthetic(name: str) -> bool:
    """Whether a name denotes a random model."""
    return name.partition(":")[0] == NAME


def synthetic_entry(name: str) -> ModelEntry:
    """The random model of that name.

    Raises
    ------
    BadInputError
        If seed or layers are not integers in range.
    """
    shape = _parse(name)
    return ModelEntry(
        name=name,
        summary=f"random chain of {shape.num_layers} layers, seed {shape.seed}; for others use synthetic:SEED:LAYERS",
        source="drawn at random",
        chain=lambda _tokens: synthetic(shape),
        shape=shape,
    )


def synthetic(shape: SyntheticShape) -> Chain:
    """A chain of random layers."""
    draws = random.Random(shape.seed)
    layers: list[LayerCounts] = []
    given = 0
    for index in range(shape.num_layers):
        layers.append(_layer(f"layer{index}", draws, given=given))
        given = layers[-1].output
    return Chain(layers=tuple(layers))


def _layer(name: str, draws: random.Random, *, given: int) -> LayerCounts:
    output = _count(draws, 4.5, 6.0)
    return LayerCounts(
        name=name,
        kind="synthetic",
        params=_count(draws, 5.0, 7.5),
        forward_flops=_count(draws, 9.0, 11.0),
        saved=given + _count(draws, 5.0, 6.5),
        output=output,
        working=2 * (given + output),
    )


def _count(draws: random.Random, low: float, high: float) -> int:
    """An integer whose decimal logarithm is uniform between the two."""
    return round(10 ** (low + (high - low) * draws.random()))


def _parse(name: str) -> SyntheticShape:
    fields = name.split(":")[1:]
    if len(fields) > 2 or not all(field.isascii() and field.isdigit() and len(field) < 20 for field in fields):
        raise BadInputError(
            f"model {name!r}: must be synthetic, synthetic:SEED or synthetic:SEED:LAYERS with integers, "
            "for example synthetic:7:24"
        )
    numbers = [int(field) for field in fields]
    seed, num_layers = (*numbers, *(DEFAULT_SEED, DEFAULT_LAYERS)[len(numbers) :])
    owner = f"model {name!r}"
    require(seed <= LARGEST_SEED, owner, "seed", f"at most {LARGEST_SEED}", seed)
    require(1 <= num_layers <= MAX_LAYERS, owner, "layers", f"between 1 and {MAX_LAYERS}", num_layers)
    return SyntheticShape(seed=seed, num_layers=num_layers)
