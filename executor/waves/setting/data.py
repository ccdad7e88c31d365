"""Data sets divided among virtual workers."""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from stagecut.executor.play.batch import Batch, Tensors
from stagecut.executor.play.stage import as_state
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan

WaveData = Callable[[int, int], Batch]
"""Maps a worker and a minibatch, counted from 1, to inputs and targets. First and last stage call it for themselves: it
must give both the same, in any order."""


def sharded(samples: Batch, plan: WavePlan, *, seed: int | None = 0) -> WaveData:
    """A data set of which every wave of all workers takes the next samples, in a new random order for each epoch.

    Worker w takes its share of a wave behind those of workers 0 .. w - 1, so no sample is taken twice in an epoch.

    Parameters
    ----------
    samples
        Inputs and targets of all samples; dimension 0 counts them.
    seed
        Of the order; None: the order in which they are.
    """
    num_samples = len(as_state(samples[0])[0])
    require(num_samples > 0, "data", "samples", "at least one", num_samples)
    sizes = [worker.samples_per_wave for worker in plan.workers]

    @lru_cache(maxsize=4)
    def order_of(epoch: int) -> Tensor:
        if seed is None:
            return torch.arange(num_samples)
        return torch.randperm(num_samples, generator=torch.Generator().manual_seed(seed + epoch))

    def batch(worker: int, minibatch: int) -> Batch:
        own = plan.workers[worker]
        wave, inside = divmod(minibatch - 1, own.wave)
        first = wave * plan.samples_per_wave + sum(sizes[:worker]) + inside * own.minibatch
        places = [divmod(place, num_samples) for place in range(first, first + own.minibatch)]
        chosen = torch.stack([order_of(epoch)[place] for epoch, place in places])
        return _taken(samples[0], chosen), _taken(samples[1], chosen)

    return batch


def _taken(tensors: Tensors, chosen: Tensor) -> Tensors:
    if isinstance(tensors, Tensor):
        return tensors[chosen]
    return tuple(tensor[chosen] for tensor in tensors)
