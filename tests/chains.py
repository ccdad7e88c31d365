"""Chains of layers to cut: their stage times, all cuts of small ones, and exact times of these."""

import itertools
from collections.abc import Sequence

import numpy as np

from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.papers.autopipe_partition.time import StageTimes
from tests.pipelines import pipeline_costs


def alike(forward_s: Sequence[float], backward_s: Sequence[float], *, num_stages: int, transfer_s: float = 0.0):
    """Times of layers on stages that are all alike, and one transfer time for all boundaries."""
    return StageTimes(
        forward_s=np.tile(np.cumsum([0.0, *forward_s]), (num_stages, 1)),
        backward_s=np.tile(np.cumsum([0.0, *backward_s]), (num_stages, 1)),
        transfer_s=np.full((num_stages - 1, len(forward_s) + 1), transfer_s),
    )


def all_stops(num_layers: int, num_stages: int) -> np.ndarray:
    """Every way to cut a chain, shape (n, num_stages)."""
    cuts = itertools.combinations(range(1, num_layers), num_stages - 1)
    return np.array([(*cut, num_layers) for cut in cuts]).reshape(-1, num_stages)


def work(times: StageTimes, stops: Sequence[int]) -> np.ndarray:
    """F + B of every stage."""
    row, last = np.arange(times.num_stages), np.array(stops)
    first = np.concatenate(([0], last[:-1]))
    return times.work_s[row, last] - times.work_s[row, first]


def simulated(times: StageTimes, stops: np.ndarray, num_microbatches: int) -> np.ndarray:
    """Exact iteration times of many partitions, stops of shape (n, p)."""
    row, costs = np.arange(times.num_stages), []
    for last in stops:
        first = np.concatenate(([0], last[:-1]))
        forward_s, backward_s = (t[row, last] - t[row, first] for t in (times.forward_s, times.backward_s))
        transfer_s = times.transfer_s[row[:-1], last[:-1]]
        costs.append(pipeline_costs(forward_s, backward_s, transfer_s, micro_batches=num_microbatches))
    return iteration_times(costs)
