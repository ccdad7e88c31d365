"""Peak memory of a rank in a training step, in the sense of the cost model: tensors and nothing else."""

import gc
from collections.abc import Iterator

import torch
from torch import Tensor

from stagecut.executor.measure.live_bytes import LiveBytes, storages
from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.batch import Batch
from stagecut.executor.play.optimizers import local_states
from stagecut.executor.play.stage import as_state


def step_peak_bytes(pipeline: Pipeline, batch: Batch, *, shares_device: bool = False) -> float:
    """Train one more, untimed step and measure its peak memory; a collective.

    On a CPU, tensors are counted as operations make them: parameters, buffers, gradients, optimizer state, saved
    activations, messages and temporaries. The batch itself is not counted, nor is memory inside operations and
    libraries. On a GPU of its own, the rank reads the peak of torch's allocator.

    Parameters
    ----------
    shares_device
        Whether other ranks use the same GPU; tensors are counted then as well.
    """
    gc.collect()
    if pipeline.device.type == "cuda" and not shares_device:
        torch.cuda.reset_peak_memory_stats(pipeline.device)
        _train(pipeline, batch)
        return float(torch.cuda.max_memory_allocated(pipeline.device))
    live = LiveBytes(
        present=storages(_lasting(pipeline)),
        passed_over=storages(tensor for part in batch for tensor in as_state(part)),
    )
    with live:
        _train(pipeline, batch)
    return float(live.start_bytes + live.peak_bytes)


def _train(pipeline: Pipeline, batch: Batch) -> None:
    pipeline.accumulate(batch)
    pipeline.optimizer.step()


def _lasting(pipeline: Pipeline) -> Iterator[Tensor]:
    """What lives across steps."""
    for stage in pipeline.stages:
        yield from stage.buffers()
        for parameter in stage.parameters():
            yield parameter
            if parameter.grad is not None:
                yield parameter.grad
    for state in local_states(pipeline.optimizer).values():
        yield from (value for value in state.values() if isinstance(value, Tensor))
