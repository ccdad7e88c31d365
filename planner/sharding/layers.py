"""The operators of a layer, and the tensor between two layers."""

from stagecut.planner.core.model import Layer
from stagecut.planner.core.operators import INPUT, OUTPUT, SAMPLE, Operator, Port, Tensor, Weight
from stagecut.planner.sharding.placements import PARTIAL, REPLICATE, Placements


def operators_of(layer: Layer) -> tuple[Operator, ...]:
    """Its operators or, where it says nothing of them, a single one that only samples can divide."""
    return layer.operators or (_whole(layer),)


def _whole(layer: Layer) -> Operator:
    return Operator(
        name="layer",
        kind=layer.kind,
        inputs=(Port(tensor=INPUT, dims=(SAMPLE,)),),
        outputs=(
            Tensor(name=OUTPUT, dims=(SAMPLE,), num_bytes=layer.output_bytes),
            Tensor(name="saved", dims=(SAMPLE,), num_bytes=layer.saved_bytes, saved=True),
        ),
        weights=(Weight(name="weights", dims=("all",), num_bytes=layer.params_bytes + layer.shared_params_bytes),),
        forward_flops=layer.forward_flops,
        working_bytes=layer.working_bytes,
    )


def saved_input_bytes(layer: Layer) -> float:
    """Of what the layer saves, what none of its operators makes: its input, which is held as it comes."""
    made = sum(tensor.num_bytes for own in operators_of(layer) for tensor in own.outputs if tensor.saved)
    return layer.saved_bytes - made


def returned(made: Placements) -> Placements:
    """Where a layer returns an output that its operator leaves like this: partial sums are summed first.

    The gradient comes back in the same placements.
    """
    return tuple(REPLICATE if own is PARTIAL else own for own in made)
