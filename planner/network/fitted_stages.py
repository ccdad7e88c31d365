"""Stages of one placement: which layers they may hold, whether they fit in memory, and what they cost."""

from dataclasses import dataclass, fields, replace

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.tolerances import PREFIX_SUM
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Variant
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.stage_costs import StageCosts, first_fitting
from stagecut.planner.network.arcs import Arcs
from stagecut.planner.network.arrangement import RECOMPUTE_MODES


def quick_intervals(costs: CostModel, variant: Variant, placement: Placement, *, longest_s: float) -> tuple[Ints, Ints]:
    """Start and stop of every stage with M (F + B) at most `longest_s`, memory and recomputation aside."""
    num_layers = costs.problem.model.num_layers
    if placement.sharding is not None:
        return _short_intervals(costs, variant, placement, longest_s=longest_s)
    zero, stops = np.zeros(num_layers + 1, dtype=np.int64), np.arange(num_layers + 1)
    prefix = costs.stages.stages(placement, micro_batch=variant.micro_batch, recompute=False, start=zero, stop=stops)
    work_s = (prefix.forward_s + prefix.backward_s) * variant.num_microbatches
    # work_s is non-decreasing, so the stops that each start may have are a range.
    furthest = np.searchsorted(work_s, (work_s[:-1] + longest_s) * (1 + PREFIX_SUM), side="right") - 1
    starts = np.arange(num_layers)
    lengths = np.minimum(furthest, num_layers) - starts
    start = np.repeat(starts, lengths)
    stop = start + 1 + np.arange(len(start)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return start, stop


def _short_intervals(
    costs: CostModel, variant: Variant, placement: Placement, *, longest_s: float
) -> tuple[Ints, Ints]:
    """The same where the costs of a stage are no sums over its layers, less those that a lower price gives as well.

    A stage whose costs are equal at two prices is one stage: the plans with either are simulated alike.
    """
    assert placement.sharding is not None
    start, stop = np.triu_indices(costs.problem.model.num_layers + 1, k=1)

    def columns(price: int) -> Floats:
        both = (
            costs.stages.stages(
                replace(placement, sharding=price),
                micro_batch=variant.micro_batch,
                recompute=recompute,
                start=start,
                stop=stop,
            )
            for recompute in (False, True)
        )
        return np.array([getattr(stages, field.name) for stages in both for field in fields(StageCosts)])

    own = columns(placement.sharding)
    names = [field.name for field in fields(StageCosts)]
    work_s = (own[names.index("forward_s")] + own[names.index("backward_s")]) * variant.num_microbatches
    chosen = work_s <= longest_s * (1 + PREFIX_SUM)
    for lower in range(placement.sharding):
        chosen &= (columns(lower) != own).any(axis=0)
    return start[chosen], stop[chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedStages:
    """Costs of n stages in the first recompute mode of the job in which they fit in memory, each of shape (n,)."""

    fits: Bools
    most_depth: Ints
    """The largest warm-up depth, up to the number of micro-batches, at which they fit in that mode."""
    recompute: Bools
    forward_s: Floats
    first_s: Floats
    """See :class:`stagecut.planner.network.arcs.Arcs`."""
    backward_s: Floats
    halving_s: Floats
    tail_s: Floats
    sync_s: Floats


def fit_stages(
    costs: CostModel, variant: Variant, placement: Placement, start: Ints, stop: Ints, depth: Ints
) -> FittedStages:
    """Whether stages with these warm-up depths fit, and in which mode."""
    limit_bytes = costs.stages.device_type(placement).memory_bytes
    seconds = {name: np.zeros(len(start)) for name in ("forward_s", "backward_s", "tail_s", "sync_s")}
    fits, recompute = np.zeros(len(start), dtype=bool), np.zeros(len(start), dtype=bool)
    modes = (
        (mode, costs.stages.stages(placement, micro_batch=variant.micro_batch, recompute=mode, start=start, stop=stop))
        for mode in RECOMPUTE_MODES[costs.problem.job.recompute]
    )
    most_depth = np.zeros(len(start), dtype=np.int64)
    for mode, stage, fresh in first_fitting(modes, depth, limit_bytes):
        recompute[fresh] = mode
        # At the depth asked for they do fit, whatever rounding says.
        most_depth[fresh] = np.maximum(depth, stage.most_depth(limit_bytes, variant.num_microbatches))[fresh]
        columns = (stage.forward_s, stage.backward_s, stage.sync_s + stage.update_s, stage.sync_s)
        for kept_s, column_s in zip(seconds.values(), columns, strict=True):
            kept_s[fresh] = column_s[fresh]
        fits |= fresh
    forward_s = seconds["forward_s"]
    half_s = _halves(costs, variant, placement, start, stop, forward_s)
    first_s = np.where(stop == costs.problem.model.num_layers, forward_s, np.minimum(half_s, forward_s))
    stated = costs.problem.job.first_num_sliced(variant.schedule, variant.micro_batch, variant.num_microbatches)
    halving_s = np.minimum(stated, depth) * np.where(np.isfinite(half_s), np.maximum(0.0, 2 * half_s - forward_s), 0.0)
    return FittedStages(
        fits=fits, most_depth=most_depth, recompute=recompute, first_s=first_s, halving_s=halving_s, **seconds
    )


def _halves(
    costs: CostModel, variant: Variant, placement: Placement, start: Ints, stop: Ints, forward_s: Floats
) -> Floats:
    """Seconds of half a forward, infinite for stages that cannot halve it; all of it where the job does not slice."""
    if not costs.problem.job.may_slice(variant.schedule, variant.micro_batch):
        return forward_s
    return costs.stages.half_forward_s(placement, micro_batch=variant.micro_batch, start=start, stop=stop)


def fit_arcs(
    costs: CostModel, variant: Variant, placements: list[Placement], arcs: Arcs, depth: Ints, *, longest_s: float
) -> tuple[Arcs, Bools, Ints]:
    """The arcs with the costs that their stages have at these warm-up depths; `placements` are those of the options.

    Also which arcs to keep: the transfers, and the stages that fit with M (F + B) at most `longest_s`; and the largest
    depth at which each fits in the same mode.
    """
    names = [field.name for field in fields(FittedStages) if field.name not in ("fits", "most_depth")]
    columns = {name: getattr(arcs, name).copy() for name in names}
    kept, most_depth = ~arcs.is_stage, np.full(len(arcs), variant.num_microbatches)
    # Options of equal placement have equal costs: one call for all of them. The leading -1 stands for transfers.
    options = np.array([-1, *(placements.index(placement) for placement in placements)])
    first_option = options[np.maximum(arcs.option, -1) + 1]
    for option in np.unique(first_option[arcs.is_stage]):
        chosen = np.flatnonzero(first_option == option)
        fitted = fit_stages(costs, variant, placements[option], arcs.start[chosen], arcs.stop[chosen], depth[chosen])
        for name, column in columns.items():
            column[chosen] = getattr(fitted, name)
        work_s = variant.num_microbatches * (fitted.forward_s + fitted.backward_s)
        kept[chosen], most_depth[chosen] = fitted.fits & (work_s <= longest_s), fitted.most_depth
    return replace(arcs, **columns), kept, most_depth
