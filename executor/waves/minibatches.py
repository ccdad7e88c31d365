"""The minibatches of a worker, as seen by its first and its last stage."""

import math

import torch
from torch import Tensor

from stagecut.executor.play.batch import Batch, Tensors, check_batch
from stagecut.executor.play.stage import LayerState, as_state, from_state
from stagecut.executor.ranks.failures import LossError
from stagecut.executor.waves.setting.data import WaveData
from stagecut.executor.waves.setting.execution import WaveExecution
from stagecut.executor.waves.setting.layout import WaveRole


class Minibatches:
    """Inputs, targets and losses of one stage's minibatches."""

    def __init__(self, execution: WaveExecution, role: WaveRole, device: torch.device) -> None:
        self._execution, self._role, self._device = execution, role, device
        worker, _ = role.member
        self._worker, self._size = worker, execution.plan.workers[worker].minibatch
        summed = execution.scheme.merge.is_step
        self._weight = self._size / execution.plan.samples_per_wave if summed else 1.0
        """Of a minibatch's mean loss: gradients are summed over the waves of all workers, updates are each worker's."""
        self.losses: list[Tensor] = []
        """Mean loss of each minibatch."""

    def batch(self, minibatch: int, data: WaveData) -> Batch:
        """Inputs and targets; refuses those of another size."""
        batch = data(self._worker, minibatch)
        check_batch(batch, self._size)
        return batch

    def inputs(self, batch: Batch) -> LayerState:
        """What the first layer takes."""
        return as_state(self._here(batch[0]))

    def objective(self, minibatch: int, output: LayerState, batch: Batch) -> Tensor:
        """What the backward begins at.

        Raises
        ------
        LossError
            If the loss is infinite or NaN.
        """
        loss = self._execution.loss(from_state(output), self._here(batch[1]))
        found = loss.detach()
        self.losses.append(found)
        if self._execution.training.check_finite and not math.isfinite(found):
            raise LossError(f"{self._role}: the loss of minibatch {minibatch} is {float(found)}", rank=self._role.rank)
        return loss * self._weight

    def _here(self, tensors: Tensors) -> Tensors:
        if isinstance(tensors, Tensor):
            return tensors.to(self._device, non_blocking=True)
        return tuple(tensor.to(self._device, non_blocking=True) for tensor in tensors)
