"""The operators of a layer of any make."""

from stagecut.planner.core.model import Layer
from stagecut.planner.core.operators.operators import INPUT, OUTPUT, SAMPLE, Operator, Port, Tensor, Weight


def operators_of(layer: Layer) -> tuple[Operator, ...]:
    """The operators of a layer; of one that says nothing of them, a single one that only samples can divide."""
    if layer.operators:
        return layer.operators
    parameters = layer.params_bytes + layer.shared_params_bytes
    return (
        Operator(
            name="layer",
            kind=layer.kind,
            inputs=(Port(tensor=INPUT, dims=(SAMPLE,)),),
            outputs=(
                Tensor(name=OUTPUT, dims=(SAMPLE,), num_bytes=layer.output_bytes),
                Tensor(name="saved", dims=(SAMPLE,), num_bytes=layer.saved_bytes, saved=True),
            ),
            weights=(Weight(name="weights", dims=(), num_bytes=parameters),) if parameters else (),
            forward_flops=layer.forward_flops,
            working_bytes=layer.working_bytes,
        ),
    )
