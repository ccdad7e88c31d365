"""Correction factors for the measured times of a model profile, from recorded runs.

A stage's forward takes the sum of its layers' forwards plus its collectives, and its backward likewise,
recomputation included. With one factor per device type, kind of layer and direction these sums are
linear in the factors, whatever the cuts of the plans:

    sum over kinds of factor x (profiled time of the layers of that kind) = measured time - collectives
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from stagecut.planner.core.cluster import DeviceType
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.run_record import ErrorSpread, RunRecord, StageRecord, relative_error
from stagecut.planner.cost.layer_times import layer_times
from stagecut.planner.cost.least_squares import least_squares_above

RIDGE = (0.02 / 0.2) ** 2
"""Weight of a factor's distance from 1 against one stage's relative error: the most likely factors (Hoerl and Kennard,
Technometrics 1970) if measured times spread by 2 % and factors by 20 %. Kinds that the runs cannot tell apart are
corrected alike."""
MIN_FACTOR = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFactor:
    """Factors by which the times of one kind of layer are multiplied on one device type."""

    device_type: str
    kind: str
    forward: float
    backward: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A corrected profile, and how much better it predicts."""

    profile: ModelProfile
    factors: tuple[KindFactor, ...]
    """Sorted by device type and kind."""
    num_runs: int
    before: ErrorSpread | None
    """Errors of the stages' forwards and backwards in the recorded runs."""
    after: ErrorSpread | None
    """The same, with the corrected times."""


def calibrate(profile: ModelProfile, runs: Sequence[RunRecord], *, ridge: float = RIDGE) -> Calibration:
    """Fit the factors of each device type to the stages that ran on it; the runs' plans were made with this profile.

    Minimises the squared relative errors plus `ridge` times the squared distance of every factor from 1; no factor is
    below `MIN_FACTOR`. Raises a BadInputError without runs, or without measured times of a layer on a device type used.
    """
    if not runs:
        raise BadInputError("no run to calibrate with")
    stages = sorted((stage for run in runs for stage in run.stages), key=lambda stage: stage.device_type)
    times = _StageTimes(profile)
    fitted = {
        device_type: _fit(times, device_type, tuple(own), ridge)
        for device_type, own in groupby(stages, key=lambda stage: stage.device_type)
    }
    factors = {(factor.device_type, factor.kind): factor for own in fitted.values() for factor in own}
    corrected = replace(profile, layers=tuple(_corrected(layer, factors) for layer in profile.layers))
    return Calibration(
        profile=corrected,
        factors=tuple(factors.values()),
        num_runs=len(runs),
        before=_spread(times, times, stages),
        after=_spread(times, _StageTimes(corrected), stages),
    )


class _StageTimes:
    """Times of stages by kind of layer, from one profile."""

    def __init__(self, profile: ModelProfile) -> None:
        self._profile = profile
        self._layer_times: dict[tuple[str, float, int], tuple[Floats, Floats]] = {}
        self.kinds = tuple(sorted({layer.kind for layer in profile.layers}))
        self._kind = np.array([self.kinds.index(layer.kind) for layer in profile.layers])

    def by_unknown(self, stage: StageRecord) -> Floats:
        """Layer seconds of a forward and a backward by unknown: forwards by kind, then backwards; shape (2, 2 K)."""
        layers = slice(stage.start, stage.stop)
        per_forward = self._of_layers(stage, stage.samples_per_replica)
        per_backward = self._of_layers(stage, stage.samples_per_backward or stage.samples_per_replica)
        forward_s, repeated_s, backward_s = (
            np.bincount(self._kind[layers], weights=seconds[layers], minlength=len(self.kinds))
            for seconds in (per_forward[0], *per_backward)
        )
        zero = np.zeros(len(self.kinds))
        again_s = repeated_s if stage.recompute else zero
        return np.array((np.concatenate((forward_s, zero)), np.concatenate((again_s, backward_s))))

    def rest_s(self, stage: StageRecord) -> Floats:
        """Predicted seconds of the collectives, in the forward and in the backward of a stage, shape (2,)."""
        predicted_s = np.array((stage.predicted.forward_s, stage.predicted.backward_s))
        rest_s: Floats = np.maximum(0.0, predicted_s - self.by_unknown(stage).sum(axis=1))
        return rest_s

    def _of_layers(self, stage: StageRecord, samples: float) -> tuple[Floats, Floats]:
        """Forward and backward seconds of every layer for so many samples."""
        key = (stage.device_type, samples, stage.tensor_parallel)
        if key not in self._layer_times:
            for layer in self._profile.layers:
                if layer.table(stage.device_type) is None:
                    raise BadInputError(
                        f"model {self._profile.name!r}: layer {layer.name!r} has no measured times on "
                        f"{stage.device_type!r}, which the runs used; only measured times can be corrected, "
                        "take a profile with `plan profile`"
                    )
            device = DeviceType(name=stage.device_type, peak_flops_per_s=(), memory_bytes=float("inf"))
            self._layer_times[key] = layer_times(self._profile, device, *key[1:])
        return self._layer_times[key]


def _fit(times: _StageTimes, device_type: str, stages: Sequence[StageRecord], ridge: float) -> tuple[KindFactor, ...]:
    rows, targets = [], []
    for stage in stages:
        seconds, rest_s = times.by_unknown(stage), times.rest_s(stage)
        for direction, measured_s in enumerate(_measured_s(stage)):
            if measured_s > 0:
                rows.append(seconds[direction] / measured_s)
                targets.append(1.0 - rest_s[direction] / measured_s)
    unknowns = 2 * len(times.kinds)
    matrix = np.concatenate((np.reshape(rows, (-1, unknowns)), np.sqrt(ridge) * np.eye(unknowns)))
    target = np.concatenate((targets, np.full(unknowns, np.sqrt(ridge))))
    forward, backward = np.split(least_squares_above(matrix, target, least=MIN_FACTOR), 2)
    return tuple(
        KindFactor(device_type=device_type, kind=kind, forward=float(forward[index]), backward=float(backward[index]))
        for index, kind in enumerate(times.kinds)
    )


def _corrected(layer: Layer, factors: Mapping[tuple[str, str], KindFactor]) -> Layer:
    """The layer with its times scaled, on the device types that have factors."""

    def scaled(table: TimeTable) -> TimeTable:
        factor = factors.get((table.device_type, layer.kind))
        if factor is None:
            return table
        return replace(
            table,
            forward_s=tuple(factor.forward * seconds for seconds in table.forward_s),
            backward_s=tuple(factor.backward * seconds for seconds in table.backward_s),
        )

    return replace(layer, times=tuple(map(scaled, layer.times)))


def _spread(recorded: _StageTimes, used: _StageTimes, stages: Sequence[StageRecord]) -> ErrorSpread | None:
    """Errors of the stages with the times of `used`; the collectives are those of the `recorded` profile."""
    errors = []
    for stage in stages:
        predicted_s = used.by_unknown(stage).sum(axis=1) + recorded.rest_s(stage)
        pairs = zip(predicted_s.tolist(), _measured_s(stage), strict=True)
        errors += [error for pair in pairs if (error := relative_error(*pair)) is not None]
    return ErrorSpread.of(errors)


def _measured_s(stage: StageRecord) -> tuple[float, float]:
    return stage.measured.forward_s, stage.measured.backward_s
