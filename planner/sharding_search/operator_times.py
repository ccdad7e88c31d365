"""Seconds of single operators on one device."""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.arrays import Floats
from stagecut.planner.core.cluster import DeviceType
from stagecut.planner.core.model import Layer, ModelProfile
from stagecut.planner.core.operators import INPUT
from stagecut.planner.core.precision import Precision
from stagecut.planner.cost.layer_times import layer_times
from stagecut.planner.sharding_search.wiring import operators_of, output_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSeconds:
    """Seconds of a layer that nothing divides, per micro-batch."""

    forward_s: tuple[float, ...]
    """One for each operator, without what starting the layer takes."""
    backward_s: tuple[float, ...]
    launch_s: float
    """In each direction, however the layer is divided; 0 where measured times include it."""


def operator_times(model: ModelProfile, device: DeviceType, samples: float) -> tuple[LayerSeconds, ...]:
    """Seconds of the operators of every layer.

    Those of the layer are shared out in proportion to what a roofline model (Williams et al., CACM 2009) says of its
    operators alone, so they add up to the layer's.
    """
    forward_s, backward_s = layer_times(model, device, samples)
    found = []
    for number, layer in enumerate(model.layers):
        launch_s = device.launch_s if layer.table(device.name) is None else 0.0
        before = model.layers[number - 1] if number else None
        shares = _shares(layer, before, device, model.precision, samples)
        found.append(
            LayerSeconds(
                forward_s=tuple((shares * (forward_s[number] - launch_s)).tolist()),
                backward_s=tuple((shares * (backward_s[number] - launch_s)).tolist()),
                launch_s=launch_s,
            )
        )
    return tuple(found)


def _shares(layer: Layer, before: Layer | None, device: DeviceType, precision: Precision, samples: float) -> Floats:
    """Parts of 1, one for each operator."""
    rate = (device.flops_per_s(precision) or np.inf) * device.efficiency
    made_bytes = {INPUT: 0.0 if before is None else output_of(before)[1].num_bytes}
    seconds = []
    for operator in operators_of(layer):
        made_bytes.update((tensor.name, tensor.num_bytes) for tensor in operator.outputs)
        names = (*(port.tensor for port in operator.inputs), *(tensor.name for tensor in operator.outputs))
        touched_bytes = operator.weight_bytes + samples * sum(made_bytes.get(name, 0.0) for name in names)
        compute_s = samples * operator.forward_flops / rate
        seconds.append(max(compute_s, touched_bytes / device.memory_bandwidth_bytes_per_s))
    total = sum(seconds)
    return np.array(seconds) / total if total > 0 else np.full(len(seconds), 1 / len(seconds))
