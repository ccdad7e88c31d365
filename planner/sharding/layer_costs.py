"""What the strategies of an operator cost as part of a layer, and at which prices."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.operators.operators import Operator
from stagecut.planner.sharding.options import Column, Options


class Cost(IntEnum):
    """Costs of a layer on each device of the mesh; those of a stage are sums, from `LARGEST` on maxima."""

    FORWARD_S = 0
    BACKWARD_S = 1
    SYNC_S = 2
    """Collectives inside the mesh, once per iteration."""
    NUM_SUMMED = 3
    """Parameters whose gradients are still to be summed over replicas and pipelines."""
    NUM_UPDATED = 4
    WEIGHT_BYTES = 5
    GRADIENT_BYTES = 6
    STATE_BYTES = 7
    """Optimizer state, before replicas and pipelines divide it."""
    SAVED_BYTES = 8
    """Per micro-batch."""
    INPUT_BYTES = 9
    """Input of the layer, per micro-batch: all that is saved under recomputation."""
    WORKING_BYTES = 10
    LARGEST_SAVED_BYTES = 11


LARGEST = Cost.WORKING_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What the cheapest strategies are the cheapest for: F + B + (sync + update) / M + price x bytes held."""

    num_microbatches: int
    """M."""
    sync_s_per_param: float
    """All-reduce over replicas and pipelines."""
    update_s_per_param: float
    num_holders: int
    """Replicas and pipelines that divide the optimizer state."""
    held_s_per_byte: float
    """Price of weights, gradients, state and the saved bytes of one micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWork:
    """A layer on one micro-batch of the mesh."""

    operators: tuple[Operator, ...]
    samples: int
    input_bytes: float
    """Of one sample; 0 for the first layer, whose input is loaded where it is needed."""
    saved_input_bytes: float
    """Of one sample: what of its input the layer keeps for the backward, as it crosses the boundary."""
    forward_s: tuple[float, ...]
    """Seconds of each operator on a single device."""
    backward_s: tuple[float, ...]
    launch_s: float
    """Overhead per direction."""


def strategy_costs(work: LayerWork, number: int, options: Options) -> Floats:
    """Costs of an operator by strategy, shape (n, costs)."""
    columns = options.costs
    rows = np.zeros((len(columns), len(Cost)))
    part = columns[:, Column.PART]
    rows[:, Cost.FORWARD_S] = work.forward_s[number] * part + columns[:, Column.FORWARD_S]
    rows[:, Cost.BACKWARD_S] = work.backward_s[number] * part + columns[:, Column.BACKWARD_S]
    for name in ("SYNC_S", "NUM_SUMMED", "NUM_UPDATED", "WEIGHT_BYTES", "GRADIENT_BYTES", "STATE_BYTES"):
        rows[:, Cost[name]] = columns[:, Column[name]]
    rows[:, Cost.SAVED_BYTES] = work.samples * columns[:, Column.SAVED_BYTES]
    rows[:, Cost.WORKING_BYTES] = work.samples * columns[:, Column.WORKING_BYTES] + columns[:, Column.GATHERED_BYTES]
    return rows


def priced(rows: Floats, prices: Prices) -> Floats:
    """What is minimised, shape (n,)."""
    once_s = (
        rows[:, Cost.SYNC_S]
        + rows[:, Cost.NUM_SUMMED] * prices.sync_s_per_param
        + rows[:, Cost.NUM_UPDATED] * prices.update_s_per_param
    )
    held_bytes = (
        rows[:, Cost.WEIGHT_BYTES]
        + rows[:, Cost.GRADIENT_BYTES]
        + rows[:, Cost.STATE_BYTES] / prices.num_holders
        + rows[:, Cost.SAVED_BYTES]
    )
    values: Floats = (
        rows[:, Cost.FORWARD_S]
        + rows[:, Cost.BACKWARD_S]
        + once_s / prices.num_microbatches
        + prices.held_s_per_byte * held_bytes
    )
    return values


def best_storage(options: Options, values: Floats) -> Ints:
    """The cheapest way to store the weights for each way to divide the loop: it concerns no other operator."""
    order = np.lexsort((values, options.groups))
    first = np.flatnonzero(np.diff(options.groups[order], prepend=-1))
    return order[first]
