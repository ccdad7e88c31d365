"""Why nothing fits, with numbers."""

from collections.abc import Sequence

import numpy as np

from stagecut.planner.core.job import AUTO
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.units import format_bytes
from stagecut.planner.core.waves import LocalStep
from stagecut.planner.workers.rows.kinds import Counts
from stagecut.planner.workers.rows.row_tables import RowTables


def reason(tables: RowTables, patterns: Sequence[Counts] | None) -> str:
    """The first reason found, of workers with these devices or of any workers.

    Memory is compared for the fewest minibatches in flight that the job allows.
    """
    choices, num_devices = tables.choices, int(tables.kinds.counts.sum())
    number = len(patterns) if patterns is not None else 1 if choices.num_workers == AUTO else choices.num_workers
    if number > num_devices:
        return f"{number} virtual workers need a device each, and there are {num_devices}"
    longest = max(map(sum, patterns), default=0) if patterns is not None else 0
    if longest > tables.num_layers:
        return f"a virtual worker of {longest} devices has more stages than the model has layers, {tables.num_layers}"
    size, batch = tables.problem.job.micro_batches[0], tables.problem.job.global_batch
    shared = batch // size
    uneven = shared < number if choices.proportional else shared % number
    if choices.local_step is LocalStep.WAVE and choices.in_flight == AUTO and uneven:
        how = "" if choices.proportional else " equally"
        return f"{number} virtual workers cannot share the {shared} minibatches of {size} of a batch of {batch}{how}"
    in_flight = 1 if choices.in_flight == AUTO else choices.in_flight
    return _layer_too_large(tables, in_flight) or _too_little_together(tables, in_flight, number, patterns)


def _layer_too_large(tables: RowTables, in_flight: int) -> str:
    """A layer that is too large for every device, even alone and as the last stage."""
    needed, limits = tables.layer_bytes(in_flight, depth=1), _limits_bytes(tables)
    best = int(limits.argmax())
    short = np.flatnonzero((needed > limits).all(axis=1))
    if not len(short):
        return ""
    layer = int(short[needed[short, best].argmax()])
    name, kind = tables.problem.model.layers[layer].name, tables.model.stages.device_type(tables.kinds.placements[best])
    return (
        f"layer {name!r} needs {format_bytes(needed[layer, best])} with {in_flight} in flight, and the largest device, "
        f"{kind.name}, has {format_bytes(limits[best])}"
    )


def _too_little_together(tables: RowTables, in_flight: int, number: int, patterns: Sequence[Counts] | None) -> str:
    """What one worker, or all of them, need and have, without counting what cuts waste."""
    limits = _limits_bytes(tables)
    model_bytes = float(tables.layer_bytes(in_flight, depth=0).min(axis=1).sum())
    teams = [(f"{number} virtual workers", number * model_bytes, _sum(limits, tables.kinds.counts))]
    teams += [("a virtual worker", model_bytes, _sum(limits, np.array(own))) for own in patterns or ()]
    for who, needed, available in teams:
        if needed > available:
            what = f"weights and optimizer state of {who} need {format_bytes(needed)} with {in_flight} in flight"
            return f"{what}, and their devices have {format_bytes(available)}"
    return f"no partition fits into memory with {in_flight} in flight, for {number} virtual workers"


def _sum(limits: Floats, counts: Ints) -> float:
    """Of unlimited memory, none is nothing."""
    return float((limits[counts > 0] * counts[counts > 0]).sum())


def _limits_bytes(tables: RowTables) -> Floats:
    kinds = tables.kinds.placements
    return np.array([tables.model.stages.device_type(own).memory_bytes for own in kinds])
