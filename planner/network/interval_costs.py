"""What stages of one variant cost at least, by placement and layers, whatever comes before and after them.

The warm-up depth of a stage depends on how many stages are still to come. That number has limits at each boundary;
costs are those of the depths within them that make the stage cheapest, so no arc of the stage network costs less.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import Schedule, warmup_depth
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.fitted_stages import FittedStages, fit_stages, quick_intervals


class IntervalCosts(NamedTuple):
    """S stages, one placement after the other, by start and stop; stops from one start follow without a gap."""

    begins: Ints
    """Where the stages of a placement from each start begin, shape (placements, L + 1)."""
    start: Ints
    stop: Ints
    possible: Bools
    """Whether a stage fits in memory with M (F + B) at most the limit asked for; the others have no costs."""
    round_trip: Floats
    """F + B, and g_0 of the first stage."""
    forward: Floats
    busy: Floats
    """What the rows add, see :mod:`stagecut.planner.network.pruning`."""
    fill: Floats
    """That of `flush` if it is larger."""
    sync: Floats
    drain: Floats


def interval_costs(
    costs: CostModel, variant: Variant, placements: Sequence[Placement], *, longest_s: float
) -> IntervalCosts:
    """The costs of all stages with M (F + B) at most `longest_s`; `costs` are those of the variant's share."""
    num_layers = costs.problem.model.num_layers
    listed = [quick_intervals(costs, variant, placement, longest_s=longest_s) for placement in placements]
    lengths = [_longest(num_layers, *each) for each in listed]
    ends = np.concatenate([np.zeros(1, dtype=np.int64), *lengths]).cumsum()
    begins = ends[num_layers * np.arange(len(placements))[:, None] + np.arange(num_layers + 1)]
    start = np.repeat(np.tile(np.arange(num_layers), len(placements)), np.diff(ends))
    stop = start + 1 + np.arange(len(start)) - np.repeat(ends[:-1], np.diff(ends))
    among = np.zeros(len(start), dtype=bool)
    for each, (first, last) in zip(begins, listed, strict=True):
        among[each[first] + last - first - 1] = True
    slices = [slice(*each) for each in begins[:, [0, -1]]]
    depths = depths_by_position(variant, costs.max_stages)
    before = np.minimum(np.arange(num_layers + 1), 1)
    after = before[::-1]
    # The depths of the first round leave out stages, which narrows the depths of the second.
    for _ in range(2):
        low, high = 1 + after[stop], np.minimum(num_layers - start, costs.max_stages - before[start])
        least, largest = (depths[np.clip(position, 0, costs.max_stages)] for position in (low, high))
        fitted = _joined(
            [
                fit_stages(costs, variant, placement, start[part], stop[part], least[part])
                for placement, part in zip(placements, slices, strict=True)
            ]
        )
        work_s = fitted.forward_s + fitted.backward_s
        possible = among & fitted.fits & (low <= high) & (variant.num_microbatches * work_s <= longest_s)
        reaches = np.zeros((num_layers + 1, num_layers + 1), dtype=bool)
        reaches[start[possible], stop[possible]] = True
        before, after = _fewest(reaches), _fewest(reaches.T[::-1, ::-1])[::-1]
    more = variant.num_microbatches - 1
    first_tail_s = np.where(start == 0, fitted.tail_s, 0.0)
    all_work_s = variant.num_microbatches * work_s + fitted.halving_s
    later_s = more * work_s - (largest - 1) * fitted.forward_s
    return IntervalCosts(
        begins=begins,
        start=start,
        stop=stop,
        possible=possible,
        round_trip=fitted.first_s + fitted.backward_s + first_tail_s,
        forward=fitted.first_s,
        busy=all_work_s + first_tail_s,
        fill=more * work_s if variant.schedule is Schedule.GPIPE else later_s,
        sync=all_work_s + fitted.tail_s,
        drain=fitted.tail_s - first_tail_s + later_s,
    )


def depths_by_position(variant: Variant, max_stages: int) -> Ints:
    """Warm-up depth k of every position q, shape (max_stages + 2,); entry 0 is unused."""
    depths = [warmup_depth(variant.schedule, max(1, q), variant.num_microbatches) for q in range(max_stages + 2)]
    return np.array(depths)


def _longest(num_layers: int, start: Ints, stop: Ints) -> Ints:
    """How many layers a stage from each start has at most, shape (L,)."""
    furthest = np.arange(num_layers)
    np.maximum.at(furthest, start, stop)
    return furthest - np.arange(num_layers)


def _joined(parts: Sequence[FittedStages]) -> FittedStages:
    kinds = {"fits": np.bool_, "recompute": np.bool_, "most_depth": np.int64}
    columns: dict[str, list[NDArray[Any]]] = {
        field.name: [np.zeros(0, kinds.get(field.name, np.float64))] for field in fields(FittedStages)
    }
    for part in parts:
        for name, column in columns.items():
            column.append(getattr(part, name))
    return FittedStages(**{name: np.concatenate(column) for name, column in columns.items()})


def _fewest(reaches: Bools) -> Ints:
    """Fewest stages from layer 0 to each boundary, shape (L + 1,); more than there are layers if there are none."""
    fewest = np.full(len(reaches), len(reaches))
    fewest[0] = 0
    for boundary in range(1, len(reaches)):
        fewest[boundary] = 1 + np.min(fewest[reaches[:, boundary]], initial=len(reaches) - 1)
    return fewest
