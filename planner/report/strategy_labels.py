"""How the devices of a replica divide a stage, in words."""

from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.plan import Stage
from stagecut.planner.report.labels import UNKNOWN
from stagecut.planner.sharding.words import stage_words


def strategy_label(model: ModelProfile, stage: Stage) -> str:
    """The strategies of the stage's layers, such as `data 2 x tensor 4, sequence`; `-` for a single device."""
    if stage.sharding is None:
        return UNKNOWN if stage.tensor_parallel == 1 else f"tensor {stage.tensor_parallel}, sequence"
    layers = [operators_of(layer) for layer in model.layers[stage.start : stage.stop]]
    return stage_words(layers, stage.sharding.layers, stage.sharding.mesh) or UNKNOWN
