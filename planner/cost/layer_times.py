"""Forward and backward seconds of single layers on one device type."""

import numpy as np

from stagecut.planner.core.cluster import DeviceType
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.numerics.arrays import Floats

BACKWARD_PER_FORWARD = 2.0
"""A backward computes the gradients of inputs and of weights: twice the work of the forward."""


def layer_times(
    model: ModelProfile, device: DeviceType, samples: float, tensor_parallel: int = 1
) -> tuple[Floats, Floats]:
    """Seconds of every layer for a micro-batch of that many samples, without collectives.

    Measured tables are interpolated where the layer has one for the device type and degree; one
    for a single device is divided by the degree. The roofline model (Williams et al., CACM 2009) is used
    elsewhere. A layer that cannot be divided is computed whole on each device.
    Forwards and backwards have shape (L,) each.
    """
    forward_s, backward_s = _roofline(model, device, samples, parts(model, tensor_parallel))
    for index, layer in enumerate(model.layers):
        shared = tensor_parallel if layer.tensor_parallel_bytes is not None else 1
        for degree, divisor in ((shared, 1), (1, shared)):
            table = layer.table(device.name, degree)
            if table is not None:
                forward_s[index] = interpolate(table.samples, table.forward_s, samples) / divisor
                backward_s[index] = interpolate(table.samples, table.backward_s, samples) / divisor
                break
    if np.isnan(forward_s).any():
        raise BadInputError(f"device type {device.name!r} has neither a peak rate nor measured times for every layer")
    return forward_s, backward_s


def parts(model: ModelProfile, tensor_parallel: int) -> Floats:
    """Number of parts into which each layer is divided: the degree, or 1 where it cannot be divided; shape (L,)."""
    return np.array([1.0 if layer.tensor_parallel_bytes is None else tensor_parallel for layer in model.layers])


def interpolate(sizes: tuple[int, ...], seconds: tuple[float, ...], samples: float) -> float:
    """Time at a micro-batch size from a measured table.

    Piecewise linear between the sizes; proportional to the size below the smallest (and everywhere,
    if there is only one); above the largest along the last segment, but never falling.
    """
    if samples <= sizes[0] or len(sizes) == 1:
        return seconds[0] * samples / sizes[0]
    if samples <= sizes[-1]:
        return float(np.interp(samples, sizes, seconds))
    slope = (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])
    return seconds[-1] + max(0.0, slope) * (samples - sizes[-1])


def _roofline(model: ModelProfile, device: DeviceType, samples: float, divisor: Floats) -> tuple[Floats, Floats]:
    """max(FLOPs / attainable rate, bytes touched / memory bandwidth) + kernel launches."""
    peak = device.flops_per_s(model.precision)
    if peak is None:
        return np.full(model.num_layers, np.nan), np.full(model.num_layers, np.nan)
    flops = samples * np.array([layer.forward_flops for layer in model.layers])
    weights = np.array([layer.params_bytes for layer in model.layers])
    activations = samples * np.array([layer.saved_bytes + layer.output_bytes for layer in model.layers])
    compute_s = flops / (peak * device.efficiency)
    memory_s = (weights + activations) / device.memory_bandwidth_bytes_per_s
    forward_s = np.maximum(compute_s, memory_s) / divisor
    return forward_s + device.launch_s, BACKWARD_PER_FORWARD * forward_s + device.launch_s
