"""Stages of one placement: which layers they may hold, whether they fit, and what they cost."""

from dataclasses import dataclass, replace

import numpy as np

from stagecut.planner.core.arrays import Bools, Floats, Ints
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Variant
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.arcs import Arcs
from stagecut.planner.network.layout import RECOMPUTE_MODES


def quick_intervals(costs: CostModel, variant: Variant, placement: Placement, *, longest_s: float) -> tuple[Ints, Ints]:
    """Start and stop of every stage with M (F + B) at most `longest_s`, memory and recomputation aside."""
    num_layers = costs.problem.model.num_layers
    zero, stops = np.zeros(num_layers + 1, dtype=np.int64), np.arange(num_layers + 1)
    prefix = costs.stages.stages(placement, micro_batch=variant.micro_batch, recompute=False, start=zero, stop=stops)
    work_s = (prefix.forward_s + prefix.backward_s) * variant.num_microbatches
    # The prefix sums round: a stage that takes exactly the limit must not be lost.
    furthest = np.searchsorted(work_s, (work_s[:-1] + longest_s) * (1 + 1e-9), side="right") - 1
    starts = np.arange(num_layers)
    lengths = np.minimum(furthest, num_layers) - starts
    start = np.repeat(starts, lengths)
    stop = start + 1 + np.arange(len(start)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return start, stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """Costs of n stages in the first recompute mode of the job in which they fit in memory, each of shape (n,)."""

    fits: Bools
    recompute: Bools
    forward_s: Floats
    first_s: Floats
    """See :class:`planner.network.arcs.Arcs`."""
    backward_s: Floats
    tail_s: Floats
    sync_s: Floats


def fit_stages(
    costs: CostModel, variant: Variant, placement: Placement, start: Ints, stop: Ints, depth: Ints
) -> Fitting:
    """Whether stages with that warm-up depth fit, and how."""
    limit_bytes = costs.stages.device_type(placement).memory_bytes
    forward_s, backward_s, tail_s, sync_s = (np.zeros(len(start)) for _ in range(4))
    fits, recompute = np.zeros(len(start), dtype=bool), np.zeros(len(start), dtype=bool)
    for mode in RECOMPUTE_MODES[costs.problem.job.recompute]:
        stage = costs.stages.stages(placement, micro_batch=variant.micro_batch, recompute=mode, start=start, stop=stop)
        fresh = (stage.memory_bytes(depth) <= limit_bytes) & ~fits
        recompute[fresh] = mode
        forward_s[fresh] = stage.forward_s[fresh]
        backward_s[fresh] = stage.backward_s[fresh]
        tail_s[fresh] = (stage.sync_s + stage.update_s)[fresh]
        sync_s[fresh] = stage.sync_s[fresh]
        fits |= fresh
        if fits.all():
            break
    return Fitting(
        fits=fits,
        recompute=recompute,
        forward_s=forward_s,
        first_s=_first_parts(costs, variant, placement, start, stop, forward_s),
        backward_s=backward_s,
        tail_s=tail_s,
        sync_s=sync_s,
    )


def _first_parts(
    costs: CostModel, variant: Variant, placement: Placement, start: Ints, stop: Ints, forward_s: Floats
) -> Floats:
    """Least seconds of the first part of a forward: half of it where the job may slice, save on the last stage."""
    if not costs.problem.job.may_slice(variant.schedule, variant.micro_batch):
        return forward_s
    half_s = costs.stages.half_forward_s(placement, micro_batch=variant.micro_batch, start=start, stop=stop)
    is_last = stop == costs.problem.model.num_layers
    return np.where(is_last, forward_s, np.minimum(half_s, forward_s))


def fit_arcs(
    costs: CostModel, variant: Variant, placements: list[Placement], arcs: Arcs, *, longest_s: float
) -> tuple[Arcs, Bools]:
    """The arcs with the costs that their stages have at their least depth.

    Parameters
    ----------
    placements
        Of every option.

    Returns
    -------
    arcs, kept
        The same arcs, and which are transfers, or stages that fit with M (F + B) at most `longest_s`.
    """
    columns = {
        name: getattr(arcs, name).copy()
        for name in ("recompute", "forward_s", "first_s", "backward_s", "tail_s", "sync_s")
    }
    kept = ~arcs.is_stage
    options = np.array([-1, *(placements.index(placement) for placement in placements)])
    first_option = options[np.maximum(arcs.option, -1) + 1]
    for option in np.unique(first_option[arcs.is_stage]):
        chosen = np.flatnonzero(first_option == option)
        fitting = fit_stages(
            costs, variant, placements[option], arcs.start[chosen], arcs.stop[chosen], arcs.least_depth[chosen]
        )
        for name, column in columns.items():
            column[chosen] = getattr(fitting, name)
        work_s = variant.num_microbatches * (fitting.forward_s + fitting.backward_s)
        kept[chosen] = fitting.fits & (work_s <= longest_s)
    return replace(arcs, **columns), kept
