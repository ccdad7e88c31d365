"""The strategies that tests run on gloo are all that operators have."""

import pytest

from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.operators.operators import INPUT
from stagecut.planner.core.operators.strategy import PARTIAL_SUMS
from stagecut.planner.sharding.placements import PARTIAL
from stagecut.planner.sharding.strategies import output_placements, strategies
from tests.executor.sharding.sharded_models import MODELS
from tests.executor.sharding.strategy_walk import walk

SAMPLES = 4


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_the_walk_plays_every_strategy_of_every_operator(name: str, size: int) -> None:
    """But partial sums of what nobody leaves partial: they come from no plan."""
    layers = MODELS[name].profile.layers
    played = {
        (operator, strategy)
        for sharding in walk(layers, (size,), samples=SAMPLES)
        for layer, own in zip(layers, sharding.layers, strict=True)
        for operator, strategy in zip(operators_of(layer), own.operators, strict=True)
    }
    assert played == {
        (operator, strategy)
        for layer in layers
        for operator in operators_of(layer)
        for strategy in strategies(operator, (size,), samples=SAMPLES)
        if PARTIAL_SUMS not in strategy.splits or takes_partial_sums(layer, operator, size)
    }


def takes_partial_sums(layer, operator, size: int) -> bool:
    """Whether every tensor that it takes is left partial by some strategy of its maker."""
    makers = {tensor.name: (own, tensor) for own in operators_of(layer) for tensor in own.outputs}
    return all(port.tensor != INPUT and leaves_partial(*makers[port.tensor], size) for port in operator.inputs)


def leaves_partial(operator, tensor, size: int) -> bool:
    options = strategies(operator, (size,), samples=SAMPLES)
    return any(
        PARTIAL in output_placements(tensor, option.splits) for option in options if PARTIAL_SUMS not in option.splits
    )
