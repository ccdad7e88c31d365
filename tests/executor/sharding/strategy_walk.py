"""Shardings that together have every strategy of every operator of a model."""

from collections.abc import Iterator, Sequence

from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.model import Layer
from stagecut.planner.core.operators.operators import INPUT, OUTPUT, Operator
from stagecut.planner.core.operators.strategy import PARTIAL_SUMS, LayerStrategy, StageSharding, Strategy
from stagecut.planner.sharding.layers import returned
from stagecut.planner.sharding.placements import REPLICATE, Placements
from stagecut.planner.sharding.strategies import output_gradient_placements, output_placements, strategies
from tests.executor.sharding.sharded_models import fits, mesh_of

Played = set[tuple[Operator, Strategy]]


def walk(layers: Sequence[Layer], sizes: tuple[int, ...], *, samples: int) -> Iterator[StageSharding]:
    """Shardings of the layers until nothing new is left to be played; each takes as much that is new as fits."""
    played: Played = set()
    while True:
        known = len(played)
        sharding = _next(layers, sizes, samples, played)
        if len(played) == known:
            return
        yield sharding


def _next(layers: Sequence[Layer], sizes: tuple[int, ...], samples: int, played: Played) -> StageSharding:
    before: Placements = (REPLICATE,) * len(sizes)
    chosen = []
    for layer in layers:
        made, own = {INPUT: (before, before)}, []
        for operator in operators_of(layer):
            options = strategies(operator, sizes, samples=samples)
            fitting = [option for option in options if fits(operator, option, made, mesh_of(sizes))]
            strategy = min(fitting, key=lambda option, of=operator: _order(of, option, played))
            played.add((operator, strategy))
            own.append(strategy)
            for tensor in operator.outputs:
                splits = strategy.splits
                made[tensor.name] = (output_placements(tensor, splits), output_gradient_placements(tensor, splits))
        chosen.append(LayerStrategy(operators=tuple(own)))
        before = returned(made[OUTPUT][0])
    return StageSharding(mesh=sizes, layers=tuple(chosen))


def _order(operator: Operator, strategy: Strategy, played: Played) -> tuple[bool, bool]:
    """What is new comes first, and of that what fits seldom."""
    return (operator, strategy) in played, PARTIAL_SUMS not in strategy.splits
