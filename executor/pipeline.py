"""A plan at work: one rank's stages, ready to train."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stagecut.executor.execution_plan import ExecutionPlan
from stagecut.executor.nonfinite import Origin, gradient_error, loss_error, origins_in_losses, replay
from stagecut.executor.play.agreement import check_same_batch
from stagecut.executor.play.batch import Batch, LossFunction, PipelineBatch, check_batch
from stagecut.executor.play.boundaries import find_boundaries
from stagecut.executor.play.clock import Clock, Mark, clock_for
from stagecut.executor.play.context import RankContext
from stagecut.executor.play.gradients import GradientSync
from stagecut.executor.play.initial_weights import sync_initial_weights
from stagecut.executor.play.pace import Pace
from stagecut.executor.play.player import Feed, Player
from stagecut.executor.play.signature import Signature, signature_of
from stagecut.executor.play.stage import LayerState, StageModule, as_state, precision
from stagecut.executor.play.trace import Span, StepTrace
from stagecut.executor.schedule.labels import ranks_label
from stagecut.executor.schedule.rank_layout import RankLayout, Role
from stagecut.executor.schedule.turns import Turn
from stagecut.executor.transport.interface import Transport
from stagecut.models.modules.module_chain import CountedLoss

SYNC, UPDATE = "sync", "update"
"""Kinds of spans other than actions: gradient synchronisation, optimizer step."""


@dataclass(kw_only=True, eq=False)
class Pipeline:
    """One rank's part of a plan: train with :meth:`step`, test with :meth:`evaluate`.

    :func:`stagecut.executor.load` builds it. All ranks call the same methods in the same order, with the
    same global batch.
    """

    execution: ExecutionPlan
    context: RankContext
    stages: tuple[StageModule, ...]
    parameters: Mapping[int, Mapping[str, nn.Parameter]]
    """The parameters of each of the rank's stages, by global name; tied weights once, under their owner's name."""
    optimizer: Optimizer
    pace: Pace
    lock: AbstractContextManager[object]
    """Held while the rank computes."""
    loss: LossFunction = field(init=False)
    turns: Sequence[Turn] = field(init=False)
    """The turns of a training step."""
    forward_turns: Sequence[Turn] = field(init=False)
    """The turns of an evaluation."""
    clock: Clock = field(init=False)
    gradient_norm: float | None = field(default=None, init=False)
    """Gradient norm of the last step before clipping; None if gradients are not clipped."""
    last_step: StepTrace | None = field(default=None, init=False)
    num_steps: int = field(default=0, init=False)
    """Training steps done, including those before a checkpoint."""
    player: Player | None = field(default=None, init=False)
    """The player of the last batch; None before the first."""
    _players: dict[Signature, Player] = field(default_factory=dict, init=False, repr=False)
    """By the signature of the inputs, which determines what crosses the boundaries."""

    def __post_init__(self) -> None:
        execution, role = self.execution, self.role
        self.loss = execution.loss
        self.turns = execution.turns(role.pipeline, training=True)[role.rank]
        self.forward_turns = execution.turns(role.pipeline, training=False)[role.rank]
        self.clock = clock_for(self.device)
        self._sync = GradientSync(self.context, self.parameters, tied=execution.tied)

    @property
    def layout(self) -> RankLayout:
        """All ranks of the plan."""
        return self.context.layout

    @property
    def role(self) -> Role:
        """What this rank is in the plan."""
        return self.context.role

    @property
    def transport(self) -> Transport:
        """The connection to the other ranks."""
        return self.context.transport

    @property
    def device(self) -> torch.device:
        """Where this rank computes."""
        return self.context.device

    @property
    def global_batch(self) -> int:
        """Samples per training step."""
        return self.execution.global_batch

    def step(self, batch: Batch) -> float:
        """Train on one global batch: play all actions, sum gradients, step the optimizer.

        Returns
        -------
        float
            Mean loss over the global batch, the same on all ranks.

        Raises
        ------
        BadInputError
            If the batch is not of the plan's size, or not the same on all ranks.
        LossError
            On all ranks, if the loss or the gradient norm is infinite or NaN. The weights are not updated then.
        """
        spans = self.accumulate(batch)
        start_s = spans[0].ready_s
        checked = self._checked_loss(batch) if self.execution.training.check_finite else None
        spans += self._timed(UPDATE, self.role.stages[0], self.optimizer.step)
        end_s = spans[-1].end_s
        loss = self._total_loss() if checked is None else checked
        self.num_steps += 1
        self.last_step = StepTrace(rank=self.role.rank, spans=tuple(spans), start_s=start_s, end_s=end_s, loss=loss)
        return loss

    def accumulate(self, batch: Batch) -> list[Span]:
        """Compute the gradients of one global batch, summed over all copies and clipped, without an update."""
        player = self._prepared(batch, training=True)
        self.optimizer.zero_grad(set_to_none=True)
        self.pace.start()
        with self._precision():
            played = player.play(self.turns, self._feed(batch))
        marks = [(str(p.action.op), p.action.stage, p.action.lo, p.action.hi, p.ready, p.start, p.end) for p in played]
        spans = []
        for stage in self.role.stages:
            spans += self._timed(SYNC, stage, partial(self._sum_gradients, stage))
        player.settle()
        if self.execution.training.clip_norm is not None:
            self._clip(self.execution.training.clip_norm)
        return [self._span(*mark) for mark in marks] + spans

    def evaluate(self, batch: Batch) -> float:
        """Mean loss over one global batch, without training on it."""
        player = self._prepared(batch, training=False)
        with torch.no_grad(), self._precision():
            player.play(self.forward_turns, self._feed(batch))
        player.settle()
        if not self.execution.training.check_finite:
            return self._total_loss()
        return self._finite_loss(batch, self.forward_turns, f"of an evaluation after {self.num_steps} steps")

    def sync_initial_weights(self) -> None:
        """Overwrite all copies of the same weights with the first one; warn if they differed."""
        others = sync_initial_weights(
            self.stages, self.named_parameters(), tied=self.execution.tied, context=self.context
        )
        if others and self.role.rank == 0:
            message = (
                f"{ranks_label(others)} started with other weights or buffers than the first copy of the same layers, "
                "and took over those of the first: seed all ranks alike, or pass functions that build the layers"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=3)

    def forget_players(self) -> None:
        """Drop whatever a failed call left unfinished."""
        self._players.clear()

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """The rank's parameters by global name; tied ones once, under their owner's name."""
        return {name: parameter for own in self.parameters.values() for name, parameter in own.items()}

    def named_buffers(self) -> dict[str, Tensor]:
        """The rank's buffers that belong in a checkpoint, by global name."""
        return {name: buffer for stage in self.stages for name, buffer in stage.global_buffers()}

    def _prepared(self, batch: Batch, *, training: bool) -> Player:
        if self.execution.training.check_batches:
            check_same_batch("step" if training else "evaluate", batch, self.context)
        check_batch(batch, self.global_batch)
        for stage in self.stages:
            if stage.division is not None:
                stage.division.refresh()
        inputs = as_state(batch[0])
        signature = signature_of(inputs)
        if signature not in self._players:
            self._players[signature] = self._new_player(inputs)
        self.player = self._players[signature]
        for stage in self.stages:
            stage.train(training)
        return self.player

    def _new_player(self, inputs: LayerState) -> Player:
        num_samples = math.lcm(*(math.prod(mesh or ()) for mesh in self.layout.meshes))
        sample = tuple(tensor[:1].expand(num_samples, *tensor.shape[1:]).to(self.device) for tensor in inputs)
        stages = self._stages_by_index()
        return Player(
            stages=stages,
            boundaries=find_boundaries(sample, stages=stages, context=self.context, autocast=self._precision()),
            context=self.context,
            clock=self.clock,
            pace=self.pace,
            lock=self.lock,
        )

    def _stages_by_index(self) -> dict[int, StageModule]:
        return {stage.index: stage for stage in self.stages}

    def _feed(self, batch: Batch) -> Feed:
        loss, last = self.loss, self.layout.num_stages - 1
        own = PipelineBatch(
            batch=batch,
            first=self.role.pipeline * (self.global_batch // self.layout.num_pipelines),
            global_batch=self.global_batch,
            device=self.device,
            loss=loss,
            count=loss.count(batch[1]) if isinstance(loss, CountedLoss) and last in self.role.stages else None,
            division=self._loss_division,
        )
        return Feed(inputs=own.inputs, objective=own.objective)

    def _precision(self) -> AbstractContextManager[object]:
        return precision(self.device, self.execution.training.autocast)

    @property
    def _loss_division(self) -> Any:
        """How the devices of a replica divide the loss, if they do and this is one of them."""
        own = (stage.division for stage in self.stages if stage.division is not None)
        return next((division.loss for division in own if division.loss is not None), None)

    def _sum_gradients(self, stage: int) -> None:
        self._sync.sum_stage(stage, self._stages_by_index()[stage].division)
        if stage == self.role.stages[-1]:
            self._sync.sum_tied()

    def _clip(self, limit: float) -> None:
        """Clip as `torch.nn.utils.clip_grad_norm_` does, to the last digit."""
        self.gradient_norm = self._sync.norm()
        factor = limit / (self.gradient_norm + 1e-6)
        if factor < 1.0:
            self._sync.scale(factor)

    def _timed(self, kind: str, stage: int, work: Callable[[], object]) -> list[Span]:
        start = self.clock.mark()
        self.pace.begin()
        work()
        self.pace.finish(kind, stage, 0)
        num_samples = self.global_batch // self.layout.num_pipelines
        return [self._span(kind, stage, 0, num_samples, start, start, self.clock.mark())]

    def _span(self, kind: str, stage: int, lo: int, hi: int, *marks: Mark) -> Span:
        ready_s, start_s, end_s = (self.clock.resolve(mark) for mark in marks)
        return Span(self.role.rank, kind, stage, lo, hi, ready_s, start_s, end_s)

    def _checked_loss(self, batch: Batch) -> float:
        """The loss of a step, checked before the update so that nothing infinite or NaN reaches the weights."""
        what = f"of step {self.num_steps + 1}"
        loss = self._finite_loss(batch, self.turns, what)
        norm = self.gradient_norm if self.execution.training.clip_norm is not None else None
        if norm is not None and not math.isfinite(norm):
            raise gradient_error(f"the gradient norm {what} is {norm}", self.parameters, self.context)
        return loss

    def _finite_loss(self, batch: Batch, turns: Sequence[Turn], what: str) -> float:
        """The total loss; if it is not finite, the forwards are replayed to find out where that began."""
        loss = self._total_loss()
        if not math.isfinite(loss):
            raise loss_error(f"the loss {what} is {loss}", self._origins(batch, turns), self.context)
        return loss

    def _origins(self, batch: Batch, turns: Sequence[Turn]) -> list[Origin]:
        player = self.player
        assert player is not None
        in_losses = origins_in_losses(player.losses, turns, last=self.layout.num_stages - 1)
        with self._precision():
            found = replay(self.forward_turns, self._feed(batch), player=player, stages=self._stages_by_index())
        return found or in_losses

    def _total_loss(self) -> float:
        losses = self.player.losses if self.player else []
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        divided = self._loss_division
        share = 1 / self.layout.tensor_parallel[self.role.group] if divided is None else float(divided.reports)
        for loss in losses:
            total += loss.double() * share
        self.transport.sum(total, self.context.everyone)
        return float(total)
