"""Turns a measurement into a model profile."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from stagecut.executor.measure.inspection import LayerFacts
from stagecut.executor.measure.profile_model import ModelMeasurement
from stagecut.models.measured_profiles import MEASURED_ON
from stagecut.planner.core.layer_graphs.fitted_operators import with_operators_of
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.precision import Precision

RELATIVE_TOLERANCE = 1e-9


def measured_profile(
    measurement: ModelMeasurement, *, precision: Precision, analytic: ModelProfile | None
) -> ModelProfile:
    """The profile for `plan solve`.

    Parameters
    ----------
    analytic
        The catalogue's profile of the model, which provides the kinds of layers, their operators and the bytes
        exchanged under tensor parallelism. None for a user's layers, which are taken to exchange their outputs.

    Raises
    ------
    BadInputError
        If the layers output other tensors than the catalogue says.
    """
    facts = measurement.facts
    known = analytic.layers if analytic else (None,) * len(facts.layers)
    layers = tuple(
        _layer(layer, times, precision=precision, analytic=catalogued)
        for layer, times, catalogued in zip(facts.layers, time_tables(measurement), known, strict=True)
    )
    profile = ModelProfile(
        name=measurement.name if analytic is None else f"{analytic.name}{MEASURED_ON}{measurement.device_type}",
        layers=layers,
        skip_edges=facts.skip_edges,
        precision=precision,
        sequence_length=analytic.sequence_length if analytic else None,
    )
    if analytic is not None and precision is Precision.FP32:  # autocast outputs several formats
        _check_boundaries(profile, analytic)
    return profile


def check_same_layers(profile: ModelProfile, names: Sequence[str], *, precision: Precision) -> None:
    """Refuse a profile to which times of these layers cannot be added.

    Raises
    ------
    BadInputError
        If the profile has other layers or another precision.
    """
    own = [layer.name for layer in profile.layers]
    if own != list(names):
        pairs = zip_longest(own, names, fillvalue="none")
        first = next(f"{a!r} instead of {b!r}" for a, b in pairs if a != b)
        raise BadInputError(f"profile {profile.name!r} has other layers than those to be timed: {first}")
    if profile.precision is not precision:
        rule = f"is in {profile.precision}, but times would be measured in {precision}"
        raise BadInputError(f"profile {profile.name!r} {rule}; use --precision {profile.precision}")


def with_times(profile: ModelProfile, measurement: ModelMeasurement) -> ModelProfile:
    """The profile with these times added, replacing earlier ones for the same device type."""
    layers = zip(profile.layers, time_tables(measurement), strict=True)
    return replace(profile, layers=tuple(_with_table(layer, table) for layer, table in layers))


def time_tables(measurement: ModelMeasurement) -> list[TimeTable | None]:
    """The time table of every layer; None for layers that were not timed."""
    forward_s, backward_s = (
        [times.layer_s(is_forward=is_forward) for times in measurement.times] for is_forward in (True, False)
    )
    tables: list[TimeTable | None] = [None] * len(measurement.facts.layers)
    for index in range(len(forward_s[0])):
        tables[measurement.first_layer + index] = TimeTable(
            device_type=measurement.device_type,
            samples=tuple(times.samples for times in measurement.times),
            forward_s=tuple(seconds[index] for seconds in forward_s),
            backward_s=tuple(seconds[index] for seconds in backward_s),
        )
    return tables


def _layer(facts: LayerFacts, table: TimeTable | None, *, precision: Precision, analytic: Layer | None) -> Layer:
    exchanged_bytes = facts.output_bytes if facts.is_shareable else None
    layer = Layer(
        name=facts.name,
        kind=analytic.kind if analytic else facts.kind,
        params_bytes=facts.num_params * precision.num_bytes,
        shared_params_bytes=facts.num_shared_params * precision.num_bytes,
        forward_flops=facts.forward_flops,
        saved_bytes=facts.saved_bytes,
        output_bytes=facts.output_bytes,
        working_bytes=facts.working_bytes,
        tensor_parallel_bytes=analytic.tensor_parallel_bytes if analytic else exchanged_bytes,
        times=() if table is None else (table,),
    )
    return with_operators_of(layer, analytic) if analytic else layer


def _with_table(layer: Layer, table: TimeTable | None) -> Layer:
    if table is None:
        return layer
    kept = [old for old in layer.times if (old.device_type, old.tensor_parallel) != (table.device_type, 1)]
    return replace(
        layer, times=tuple(sorted((*kept, table), key=lambda each: (each.tensor_parallel, each.device_type)))
    )


def _check_boundaries(profile: ModelProfile, analytic: ModelProfile) -> None:
    pairs = zip(profile.boundary_bytes(), analytic.boundary_bytes(), strict=True)
    for boundary, (measured, stated) in enumerate(pairs):
        if abs(measured - stated) > RELATIVE_TOLERANCE * stated:
            raise BadInputError(
                f"model {profile.name!r}: the layers output {measured:g} bytes per sample at boundary {boundary}, "
                f"but the catalogue says {stated:g}"
            )
