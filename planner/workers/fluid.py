"""An upper bound on the throughput of any workers: layers that can be divided freely over devices."""

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.numerics.tolerances import ALMOST_ZERO
from stagecut.planner.core.waves import LocalStep
from stagecut.planner.solvers.search.highs import LinearProgram, solve_linear
from stagecut.planner.workers.rows.row_tables import RowTables
from stagecut.planner.workers.wave_search import WaveSearch


def fluid_bound(search: WaveSearch, tables: RowTables) -> float:
    """Samples per second, at most.

    With t[l,k] the seconds of a minibatch of layer l on a device of kind k, n[k] of which there are, workers make R
    minibatches per second at most:

        max R,  sum over k of x[l,k] >= R for every l,  sum over l of t[l,k] x[l,k] <= n[k] for every k.

    Any prices p >= 0 of the kinds bound it: R <= sum of n[k] p[k] / sum over l of min over k of t[l,k] p[k]. Those of
    the program give the same, without its tolerances. Equal prices stand in where they do not.
    """
    seconds = np.array([_layer_s(tables, kind) for kind in range(tables.kinds.num_kinds)]).T
    counts = tables.kinds.counts.astype(float)
    prices = [np.ones_like(counts), 1 / np.maximum(seconds.sum(axis=0), ALMOST_ZERO)]
    if not seconds.min(axis=1).any():
        return np.inf
    program = _program(seconds, counts)
    answer = solve_linear(program, time_limit_s=search.seconds_left, stop=lambda: search.out_of_budget)
    if answer.row_duals.shape == (len(seconds) + len(counts),):
        prices.append(np.abs(answer.row_duals[len(seconds) :]))
    worths = [(own @ counts, (seconds * own).min(axis=1).sum()) for own in prices]
    bounds = [above / below for above, below in worths if below > 0]
    return tables.problem.job.micro_batches[0] * min(bounds, default=np.inf)


def _layer_s(tables: RowTables, kind: int) -> Floats:
    """Forward, backward, and local step of every layer alone, shape (L,)."""
    layers = np.arange(tables.num_layers)
    costs = tables.model.stage_costs(
        tables.kinds.placements[kind],
        minibatch=tables.problem.job.micro_batches[0],
        in_flight=1,
        local_step=tables.choices.local_step,
        recompute=False,
        start=layers,
        stop=layers + 1,
    )
    each = tables.choices.local_step is LocalStep.MINIBATCH
    total: Floats = costs.forward_s + costs.backward_s + (costs.update_s if each else 0.0)
    return total


def _program(seconds: Floats, counts: Floats) -> LinearProgram:
    """Variables R and x[l,k], l in the outer order."""
    num_layers, num_kinds = seconds.shape
    layer, kind = (index.ravel() for index in np.indices(seconds.shape))
    columns = 1 + np.arange(num_layers * num_kinds)
    scale = seconds.max() or 1.0
    return LinearProgram(
        cost=np.concatenate(([-1.0], np.zeros(seconds.size))),
        lower=np.zeros(1 + seconds.size),
        upper=np.full(1 + seconds.size, np.inf),
        row_lower=np.concatenate((np.zeros(num_layers), np.full(num_kinds, -np.inf))),
        row_upper=np.concatenate((np.full(num_layers, np.inf), counts)),
        entry_row=np.concatenate((np.arange(num_layers), layer, num_layers + kind)),
        entry_column=np.concatenate((np.zeros(num_layers, dtype=int), columns, columns)),
        entry_value=np.concatenate((-np.ones(num_layers), np.ones(seconds.size), seconds.ravel() / scale)),
    )
