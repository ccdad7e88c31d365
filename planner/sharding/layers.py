"""The tensor between two layers."""

from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.model import Layer
from stagecut.planner.sharding.placements import PARTIAL, REPLICATE, Placements


def saved_input_bytes(layer: Layer) -> float:
    """Of what the layer saves, what none of its operators makes: its input, which is held as it comes."""
    made = sum(tensor.num_bytes for own in operators_of(layer) for tensor in own.outputs if tensor.saved)
    return layer.saved_bytes - made


def returned(made: Placements) -> Placements:
    """Where a layer returns an output that its operator leaves like this: partial sums are summed first.

    The gradient comes back in the same placements.
    """
    return tuple(REPLICATE if own is PARTIAL else own for own in made)
