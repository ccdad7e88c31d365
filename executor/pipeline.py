"""A plan at work: one rank's stages, ready to train."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stagecut.executor.loss_faults import gradient_fault, loss_fault
from stagecut.executor.play.agreement import check_same_batch, ranks_label
from stagecut.executor.play.batch import Batch, LossFunction, Share, check_batch
from stagecut.executor.play.boundaries import find_boundaries
from stagecut.executor.play.clock import Clock, Mark
from stagecut.executor.play.finite import Place, look_again, places_of_losses
from stagecut.executor.play.gradients import GradientSync, TiedWeights
from stagecut.executor.play.layout import Layout, Role
from stagecut.executor.play.messages import Turn
from stagecut.executor.play.pace import Pace
from stagecut.executor.play.player import Feed, Player, Signature, signature_of
from stagecut.executor.play.same_start import start_alike
from stagecut.executor.play.stage import StageModule, State, as_state
from stagecut.executor.play.trace import Span, StepTrace
from stagecut.executor.play.transport import Transport
from stagecut.models.module_chain import CountedLoss

SYNC, UPDATE = "sync", "update"
"""Kinds of spans beside the actions: sum of gradients, optimizer step."""


@dataclass(kw_only=True, eq=False)
class Pipeline:
    """What :func:`executor.load` gives: train with :meth:`step`, look with :meth:`evaluate`.

    All ranks call the same methods in the same order, with the same global batch.
    """

    model: str
    """Its name."""
    plan_hash: str | None
    """SHA-256 of the plan file's tree; None: the plan is of no file."""
    layout: Layout
    role: Role
    stages: tuple[StageModule, ...]
    parameters: Mapping[int, Mapping[str, nn.Parameter]]
    """Of each of the rank's stages, by global name; tied weights once, under their owner's name."""
    optimizer: Optimizer
    transport: Transport
    device: torch.device
    global_batch: int
    loss: LossFunction
    turns: Sequence[Turn]
    """Of a training step."""
    forward_turns: Sequence[Turn]
    """Of an evaluation."""
    sync: GradientSync
    tied: tuple[TiedWeights, ...]
    """Of all ranks: weights that stages on different device groups have in common."""
    clock: Clock
    pace: Pace
    alone: AbstractContextManager[object]
    """Held while the rank computes."""
    autocast: torch.dtype | None = None
    check_batches: bool = True
    """Whether to compare the batches of all ranks before anything is computed."""
    check_finite: bool = True
    """Whether to stop at a loss that is infinite or no number."""
    clip_norm: float | None = None
    """Largest norm of the gradient; a larger one is scaled down to it."""
    gradient_norm: float | None = field(default=None, init=False)
    """Before clipping, of the last step; None where gradients are not clipped."""
    last_step: StepTrace | None = field(default=None, init=False)
    num_steps: int = field(default=0, init=False)
    """Training steps done, those before a checkpoint included."""
    player: Player | None = field(default=None, init=False)
    """Of the last batch; None before the first one."""
    _players: dict[Signature, Player] = field(default_factory=dict, init=False, repr=False)
    """By what samples look like: their shapes tell what crosses the boundaries."""

    def step(self, batch: Batch) -> float:
        """Train on one global batch: play all actions, sum gradients, step the optimizer.

        Returns
        -------
        float
            Mean loss over the global batch, the same on all ranks.

        Raises
        ------
        BadInputError
            If the batch has another size than the plan's, or is not the same on all ranks.
        LossError
            On all ranks, if the loss or the norm of the gradients is infinite or no number. Nothing is updated then.
        """
        spans = self.accumulate(batch)
        start_s = spans[0].ready_s
        checked = self._checked_loss(batch) if self.check_finite else None
        spans += self._timed(UPDATE, self.role.stages[0], self.optimizer.step)
        end_s = spans[-1].end_s
        loss = self._total_loss() if checked is None else checked
        self.num_steps += 1
        self.last_step = StepTrace(
            rank=self.role.rank,
            spans=tuple(spans),
            start_s=start_s,
            end_s=end_s,
            loss=loss,
        )
        return loss

    def accumulate(self, batch: Batch) -> list[Span]:
        """Gradients of one global batch, summed over all copies of the weights and clipped; nothing is updated."""
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
        if self.clip_norm is not None:
            self._clip(self.clip_norm)
        return [self._span(*mark) for mark in marks] + spans

    def evaluate(self, batch: Batch) -> float:
        """Mean loss over one global batch, without training on it."""
        player = self._prepared(batch, training=False)
        with torch.no_grad(), self._precision():
            player.play(self.forward_turns, self._feed(batch))
        player.settle()
        if not self.check_finite:
            return self._total_loss()
        return self._finite_loss(batch, self.forward_turns, f"of an evaluation after {self.num_steps} steps")

    def start_alike(self) -> None:
        """Give all copies of the same weights the numbers of the first one, and say where they had others."""
        others = start_alike(
            self.stages,
            self.named_parameters(),
            tied=self.tied,
            layout=self.layout,
            role=self.role,
            transport=self.transport,
            device=self.device,
        )
        if others and self.role.rank == 0:
            message = (
                f"{ranks_label(others)} began with other weights or buffers than the first copy of the same layers, "
                "and took over those of the first: seed all ranks alike, or give functions that build the layers"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=3)

    def forget_players(self) -> None:
        """Leave behind whatever a call that failed had under way."""
        self._players.clear()

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """The rank's parameters by their global names; tied ones once, under their owner's name."""
        return {name: parameter for own in self.parameters.values() for name, parameter in own.items()}

    def named_buffers(self) -> dict[str, Tensor]:
        """The rank's buffers that a checkpoint holds, by their global names."""
        return {name: buffer for stage in self.stages for name, buffer in stage.global_buffers()}

    def _prepared(self, batch: Batch, *, training: bool) -> Player:
        if self.check_batches:
            check_same_batch(
                "step" if training else "evaluate",
                batch,
                rank=self.role.rank,
                world_size=self.layout.world_size,
                transport=self.transport,
                device=self.device,
            )
        check_batch(batch, self.global_batch)
        self.player = self._player_for(as_state(batch[0]))
        for stage in self.stages:
            stage.train(training)
        return self.player

    def _player_for(self, inputs: State) -> Player:
        samples = signature_of(inputs)
        if samples not in self._players:
            self._players[samples] = self._new_player(inputs)
        return self._players[samples]

    def _new_player(self, inputs: State) -> Player:
        stages = {stage.index: stage for stage in self.stages}
        boundaries = find_boundaries(
            tuple(tensor[:1].to(self.device) for tensor in inputs),
            stages=stages,
            layout=self.layout,
            transport=self.transport,
            device=self.device,
            autocast=self._precision(),
        )
        return Player(
            stages=stages,
            boundaries=boundaries,
            transport=self.transport,
            device=self.device,
            clock=self.clock,
            pace=self.pace,
            alone=self.alone,
        )

    def _feed(self, batch: Batch) -> Feed:
        loss, last = self.loss, self.layout.num_stages - 1
        share = Share(
            batch=batch,
            first=self.role.pipeline * (self.global_batch // self.layout.num_pipelines),
            global_batch=self.global_batch,
            device=self.device,
            loss=loss,
            count=loss.count(batch[1]) if isinstance(loss, CountedLoss) and last in self.role.stages else None,
        )
        return Feed(inputs=share.inputs, objective=share.objective)

    def _precision(self) -> AbstractContextManager[object]:
        return nullcontext() if self.autocast is None else torch.autocast(self.device.type, dtype=self.autocast)

    def _sum_gradients(self, stage: int) -> None:
        self.sync.sum_stage(stage)
        if stage == self.role.stages[-1]:
            self.sync.sum_tied()

    def _clip(self, limit: float) -> None:
        """As `torch.nn.utils.clip_grad_norm_` does, to the last digit."""
        self.gradient_norm = self.sync.norm()
        factor = limit / (self.gradient_norm + 1e-6)
        if factor < 1.0:
            self.sync.scale(factor)

    def _timed(self, kind: str, stage: int, work: Callable[[], object]) -> list[Span]:
        start = self.clock.mark()
        self.pace.begin()
        work()
        self.pace.finish(kind, stage, 0)
        return [
            self._span(kind, stage, 0, self.global_batch // self.layout.num_pipelines, start, start, self.clock.mark())
        ]

    def _span(self, kind: str, stage: int, lo: int, hi: int, *marks: Mark) -> Span:
        ready_s, start_s, end_s = (self.clock.resolve(mark) for mark in marks)
        return Span(self.role.rank, kind, stage, lo, hi, ready_s, start_s, end_s)

    def _checked_loss(self, batch: Batch) -> float:
        """The loss of a step before its update: what is no finite number does not reach the weights."""
        what = f"of step {self.num_steps + 1}"
        loss = self._finite_loss(batch, self.turns, what)
        if self.clip_norm is not None and self.gradient_norm is not None and not math.isfinite(self.gradient_norm):
            raise gradient_fault(self, f"the norm of the gradients {what} is {self.gradient_norm}")
        return loss

    def _finite_loss(self, batch: Batch, turns: Sequence[Turn], what: str) -> float:
        """The total loss; where it is no finite number the forwards are played again, to find out where that began."""
        loss = self._total_loss()
        if not math.isfinite(loss):
            raise loss_fault(self, f"the loss {what} is {loss}", self._places(batch, turns))
        return loss

    def _places(self, batch: Batch, turns: Sequence[Turn]) -> list[Place]:
        player, rank, last = self.player, self.role.rank, self.layout.num_stages - 1
        assert player is not None
        of_losses = places_of_losses(player.losses, turns, last=last, rank=rank)
        stages = {stage.index: stage for stage in self.stages}
        with self._precision():
            found = look_again(self.forward_turns, self._feed(batch), player=player, stages=stages, rank=rank)
        return found or of_losses

    def _total_loss(self) -> float:
        losses = self.player.losses if self.player else []
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for loss in losses:
            total += loss.double() / self.layout.tensor_parallel[self.role.group]
        self.transport.sum(total, tuple(range(self.layout.world_size)))
        return float(total)
