"""The gradients of a stage's minibatches, until what only other stages know has come.

Tied weights: every layer keeps its own copy, and the gradients of all copies of a worker are summed. Copies start equal
and get the same gradients, so their optimizers step them alike; between workers each is exchanged with its own layer.

Clipping: the norm is that of the whole model's gradient, for which each stage adds up the squares of its own; a tied
weight counts once. With a step after each minibatch it is the minibatch's own gradient, as a worker that trained alone
would clip it; with one step a wave, that of the whole wave of all workers.
"""

import math
from collections.abc import Mapping
from functools import reduce
from operator import add

import torch
from torch import Tensor

from stagecut.executor.ranks.failures import LossError
from stagecut.executor.transport.interface import Transport
from stagecut.executor.waves.messages.stage_sums import StageSums
from stagecut.executor.waves.messages.tied import tied_of
from stagecut.executor.waves.setting.execution import WaveExecution
from stagecut.executor.waves.setting.layout import WaveRole

Gradients = dict[str, Tensor | None]
"""By global name."""


class StageGradients:
    """Those of one stage.

    Parameters
    ----------
    weights
        The stage's trained weights.
    """

    def __init__(
        self, execution: WaveExecution, role: WaveRole, *, transport: Transport, weights: Mapping[str, Tensor]
    ) -> None:
        self._role, self._weights = role, weights
        self._limit, self._check_finite = execution.training.clip_norm, execution.training.check_finite
        self._clips_minibatches = self._limit is not None and not execution.scheme.merge.is_step
        worker, stage = execution.plan.workers[role.member[0]], role.member[1]
        groups = dict(enumerate(tied_of(execution, role.member)))
        self._norm, self._stages = len(groups), tuple(range(worker.num_stages))
        self._leads = {index: group for index, group in groups.items() if group.stages[0] == stage}
        """Tied weights of which all other stages have sent their gradients when this one has its own."""
        self._follows = {
            index: group for index, group in groups.items() if stage in group.stages and index not in self._leads
        }
        first = [group.stages[0] for group in self._follows.values()] + [0] * self._clips_minibatches
        self.lag = 0 if min(first, default=stage) == stage else worker.stages[min(first)].warmup_depth
        """Minibatches after which all stages have certainly sent what is needed: 0, once this stage has its own."""
        num_sums = len(self._leads) + len(self._follows) + (self._limit is not None)
        self._sums = StageSums(execution, role.member, transport=transport, num_sums=num_sums)
        self._waiting: dict[int, Gradients] = {}

    def put(self, minibatch: int, gradients: Gradients) -> None:
        """Keep the gradients of a minibatch or wave, and send the other stages what they need of them."""
        for index, group in {**self._leads, **self._follows}.items():
            zeros = torch.zeros_like(self._weights[group.names[0]])
            own = reduce(add, (part for name in group.names if (part := gradients[name]) is not None), zeros)
            self._sums.send(index, minibatch, own, stages=group.stages)
        for index, group in self._leads.items():
            total = self._sums.total(index, minibatch, stages=group.stages)
            gradients |= dict.fromkeys(group.names, total)
        if self._clips_minibatches:
            self._sums.send(self._norm, minibatch, self._squares(gradients), stages=self._stages)
        self._waiting[minibatch] = gradients

    def waiting(self, last: int) -> list[int]:
        """Minibatches up to the last one whose gradients have not been taken."""
        return [minibatch for minibatch in self._waiting if minibatch <= last]

    def take(self, minibatch: int) -> Gradients:
        """Wait for what the other stages have sent; the gradients to step with, or to push."""
        gradients = self._waiting.pop(minibatch)
        for index, group in self._follows.items():
            total = self._sums.total(index, minibatch, stages=group.stages)
            gradients |= dict.fromkeys(group.names, total)
        if self._clips_minibatches:
            self._clip(minibatch, gradients, what=f"minibatch {minibatch}")
        return gradients

    def clip_wave(self, wave: int, gradients: Gradients) -> None:
        """Clip, if asked for, what all workers' gradients of a wave have come to; all stages of a worker call it."""
        if self._limit is not None:
            self._sums.send(self._norm, wave, self._squares(gradients), stages=self._stages)
            self._clip(wave, gradients, what=f"wave {wave}")

    def settle(self) -> None:
        """Wait until all has left."""
        self._sums.settle()

    def _squares(self, gradients: Gradients) -> Tensor:
        """The squared norm of what counts on this stage."""
        copies = {name for group in self._follows.values() for name in group.names}
        copies |= {name for group in self._leads.values() for name in group.names[1:]}
        counted = (each for name, each in gradients.items() if each is not None and name not in copies)
        norms = [torch.linalg.vector_norm(each, dtype=torch.float64) for each in counted]
        device = next((weight.device for weight in self._weights.values()), torch.device("cpu"))
        return torch.stack([*norms, torch.zeros((), dtype=torch.float64, device=device)]).square().sum()

    def _clip(self, number: int, gradients: Gradients, *, what: str) -> None:
        """Scale as `torch.nn.utils.clip_grad_norm_` does."""
        assert self._limit is not None
        norm = math.sqrt(self._sums.total(self._norm, number, stages=self._stages))
        if self._check_finite and not math.isfinite(norm):
            raise LossError(f"{self._role}: the gradient norm of {what} is {norm}", rank=self._role.rank)
        factor = self._limit / (norm + 1e-6)
        for each in {id(each): each for each in gradients.values() if each is not None}.values():
            if factor < 1.0:  # copies of a tied weight on one stage share their gradient
                each.mul_(factor)


def gradient_of(tensor: Tensor) -> Tensor:
    """The gradient of an input of a stage; zero if nothing depends on it."""
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
