"""Forward and backward seconds of the operators of layers, undivided."""

import numpy as np

from stagecut.planner.core.cluster import DeviceType
from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.operators.operators import INPUT, Operator
from stagecut.planner.core.precision import Precision
from stagecut.planner.cost.layer_times import layer_times
from stagecut.planner.sharding.layer_costs import LayerWork
from stagecut.planner.sharding.layers import saved_input_bytes


def layer_works(model: ModelProfile, device: DeviceType, samples: int) -> tuple[LayerWork, ...]:
    """Every layer for a micro-batch of that many samples.

    The seconds of a layer are those of :func:`stagecut.planner.cost.layer_times.layer_times`. Its operators have
    shares of them in proportion to their own roofline times (Williams et al., CACM 2009). The overhead of launches is
    no part of an estimate that is divided; what was measured is divided whole.
    """
    forward_s, backward_s = layer_times(model, device, samples)
    works = []
    for index, layer in enumerate(model.layers):
        operators, input_bytes = operators_of(layer), model.layers[index - 1].output_bytes if index else 0.0
        launch_s = device.launch_s if layer.table(device.name) is None else 0.0
        shares = operator_shares(operators, device, model.precision, samples=samples, input_bytes=input_bytes)
        works.append(
            LayerWork(
                operators=operators,
                samples=samples,
                input_bytes=input_bytes,
                saved_input_bytes=saved_input_bytes(layer),
                forward_s=tuple(float(share) for share in (forward_s[index] - launch_s) * shares),
                backward_s=tuple(float(share) for share in (backward_s[index] - launch_s) * shares),
                launch_s=launch_s,
            )
        )
    return tuple(works)


def operator_shares(
    operators: tuple[Operator, ...], device: DeviceType, precision: Precision, *, samples: float, input_bytes: float
) -> Floats:
    """Part of the layer's computation that each operator is, shape (operators,).

    In proportion to max(FLOPs / attainable rate, bytes of weights, inputs and outputs / memory bandwidth); a device
    type without a rate counts bytes only. Equal parts if all of that is zero.
    """
    sizes = {INPUT: input_bytes} | {tensor.name: tensor.num_bytes for own in operators for tensor in own.outputs}
    peak = device.flops_per_s(precision)
    rate = np.inf if peak is None else peak * device.efficiency
    seconds = np.array([_roofline_s(own, sizes, samples, rate, device) for own in operators])
    total = seconds.sum()
    return seconds / total if total > 0 else np.full(len(operators), 1 / len(operators))


def _roofline_s(operator: Operator, sizes: dict[str, float], samples: float, rate: float, device: DeviceType) -> float:
    tensors = [sizes[port.tensor] for port in operator.inputs] + [tensor.num_bytes for tensor in operator.outputs]
    touched_bytes = operator.weight_bytes + samples * sum(tensors)
    return max(samples * operator.forward_flops / rate, touched_bytes / device.memory_bandwidth_bytes_per_s)
