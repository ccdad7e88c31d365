"""Whether the operators of a layer are a graph that computes the layer."""

from collections.abc import Iterator, Sequence
from math import isclose

from stagecut.planner.core.model import Layer
from stagecut.planner.core.operators.operators import INPUT, OUTPUT, SAMPLE, Operator

GraphFault = tuple[tuple[str | int, ...], str]
"""Place below the operators, and what is wrong there."""
RELATIVE_TOLERANCE = 1e-6


def graph_faults(operators: Sequence[Operator]) -> Iterator[GraphFault]:
    """Operators take what earlier ones make, are divided along dimensions that they have, and return an output."""
    names, made = set[str](), dict[str, int]()
    for index, operator in enumerate(operators):
        if operator.name in names:
            yield (index, "name"), f"operator {operator.name!r} appears twice"
        names.add(operator.name)
        yield from _port_faults(index, operator, made)
        yield from _split_faults(index, operator)
        for slot, tensor in enumerate(operator.outputs):
            if tensor.name in made or tensor.name == INPUT:
                yield (index, "outputs", slot, "name"), f"tensor {tensor.name!r} exists already"
            made[tensor.name] = len(tensor.dims)
    if OUTPUT not in made:
        yield (), f"no operator makes the tensor {OUTPUT!r}"


def _port_faults(index: int, operator: Operator, made: dict[str, int]) -> Iterator[GraphFault]:
    for slot, port in enumerate(operator.inputs):
        if port.tensor == INPUT:
            continue
        if port.tensor not in made:
            known = ", ".join((INPUT, *made))
            yield (index, "inputs", slot, "tensor"), f"no earlier operator makes {port.tensor!r}, accepted: {known}"
        elif len(port.dims) != made[port.tensor]:
            rule = f"must be {made[port.tensor]} dimensions like the tensor's"
            yield (index, "inputs", slot, "dims"), f"{rule}, got {len(port.dims)}"


def _split_faults(index: int, operator: Operator) -> Iterator[GraphFault]:
    named = [part.dims for parts in (operator.inputs, operator.outputs, operator.weights) for part in parts]
    loop = dict.fromkeys(dim for dims in named for dim in dims)
    for slot, split in enumerate(operator.splits):
        place = (index, "splits", slot)
        if split.dim not in loop:
            yield (*place, "dim"), f"no tensor has the dimension {split.dim!r}, accepted: {', '.join(loop)}"
        if (split.size is None) != (split.dim == SAMPLE):
            yield place, f"every dimension but {SAMPLE!r} must have a size"


def sum_faults(layer: Layer) -> Iterator[str]:
    """The counts of a layer are the sums over its operators; the input is the rest of what is saved."""
    saved = (tensor.num_bytes for each in layer.operators for tensor in each.outputs if tensor.saved)
    sums = {
        "params_bytes + shared_params_bytes": (
            sum(each.weight_bytes for each in layer.operators),
            layer.params_bytes + layer.shared_params_bytes,
        ),
        "forward_flops": (sum(each.forward_flops for each in layer.operators), layer.forward_flops),
        "output_bytes": (
            sum(tensor.num_bytes for each in layer.operators for tensor in each.outputs if tensor.name == OUTPUT),
            layer.output_bytes,
        ),
        "working_bytes": (sum(each.working_bytes for each in layer.operators), layer.working_bytes),
    }
    for name, (total, stated) in sums.items():
        if not isclose(total, stated, rel_tol=RELATIVE_TOLERANCE):
            yield f"operators add up to {total:g}, but {name} of layer {layer.name!r} is {stated:g}"
    if (total := sum(saved)) > layer.saved_bytes * (1 + RELATIVE_TOLERANCE):
        yield f"operators save {total:g} bytes, but saved_bytes of layer {layer.name!r} is {layer.saved_bytes:g}"
