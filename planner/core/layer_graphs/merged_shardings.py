"""Shardings of runs of layers: see :mod:`stagecut.planner.core.merged_model`.

A run is divided like one layer with the operators of all its layers.
"""

from itertools import islice

from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.operators.strategy import LayerStrategy, StageSharding


def of_runs(model: ModelProfile, sharding: StageSharding, *, start: int, stop: int) -> StageSharding:
    """The sharding of the layers in the runs [start, stop), as one of runs."""
    lengths = (model.unmerged[1][start + 1 : stop + 1] - model.unmerged[1][start:stop]).tolist()
    layers = iter(sharding.layers)
    runs = ([own for layer in islice(layers, length) for own in layer.operators] for length in lengths)
    return StageSharding(mesh=sharding.mesh, layers=tuple(LayerStrategy(operators=tuple(run)) for run in runs))


def of_layers(model: ModelProfile, sharding: StageSharding, *, start: int, stop: int) -> StageSharding:
    """The sharding of the runs [start, stop), as one of their layers."""
    chain, begins = model.unmerged
    operators = (own for run in sharding.layers for own in run.operators)
    layers = (
        LayerStrategy(operators=tuple(islice(operators, len(operators_of(layer)))))
        for layer in chain.layers[begins[start] : begins[stop]]
    )
    return StageSharding(mesh=sharding.mesh, layers=tuple(layers))
