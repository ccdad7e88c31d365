"""One stage of a virtual worker at work."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from stagecut.executor.play.batch import Batch, Tensors, check_batch
from stagecut.executor.play.optimizers import build_optimizer
from stagecut.executor.play.stage import LayerState, as_state, from_state, precision
from stagecut.executor.ranks.failures import LossError
from stagecut.executor.transport.interface import Transport
from stagecut.executor.waves.channels import Channel
from stagecut.executor.waves.data import WaveData
from stagecut.executor.waves.exchange import PartExchange, StageExchange
from stagecut.executor.waves.execution import WaveExecution
from stagecut.executor.waves.flat import FlatLayout
from stagecut.executor.waves.layout import Part, WaveRole
from stagecut.executor.waves.mail import Inbox, Outbox
from stagecut.executor.waves.order import WaveAction, continuous, in_waves
from stagecut.executor.waves.report import WaveReport
from stagecut.executor.waves.schemes import Gate
from stagecut.executor.waves.staleness import StalenessCheck
from stagecut.executor.waves.tied import TiedGradients
from stagecut.executor.waves.waits import Waits, WaveSpan
from stagecut.executor.waves.wave_pace import WavePace
from stagecut.executor.waves.weights import StageWeights
from stagecut.planner.simulator.action_lists import Op

ChannelMaker = Callable[[Part, FlatLayout, Tensor], Channel]
"""Makes the channel of a part from the places of its weights in a vector, and that vector."""


class StageWorker:
    """One rank's stage: train with :meth:`train`.

    Parameters
    ----------
    channel_of
        Connects a part of the stage with the other workers.
    lock
        Held while the rank computes; None: ranks may compute at the same time.
    pace
        Told of everything that takes time: forwards, backwards and updates, and messages between stages.
    """

    def __init__(
        self,
        execution: WaveExecution,
        role: WaveRole,
        *,
        transport: Transport,
        channel_of: ChannelMaker,
        device: torch.device,
        lock: AbstractContextManager[object] | None = None,
        pace: WavePace | None = None,
    ) -> None:
        self.execution, self.role, self.device = execution, role, device
        self._index, self._stage = role.member
        plan, scheme = execution.plan, execution.scheme
        self.worker = worker = plan.workers[self._index]
        self._planned = worker.stages[self._stage]
        self.module = execution.stage_module(self._index, self._stage, device)
        self.rule = scheme.rule_of(plan, worker)
        self.weights = StageWeights(self.module, versions=not scheme.merge.is_step)
        self.optimizer = build_optimizer(self.weights.master, execution.training.optimizer)
        scheduler = execution.training.scheduler
        self.scheduler = None if scheduler is None else scheduler(self.optimizer)
        alone = len(plan.workers) == 1
        self.exchange = StageExchange(
            [] if alone and not scheme.merge.is_step else list(self._parts(channel_of)),
            self.weights,
            self.optimizer,
            merge=scheme.merge,
            clock_distance=0 if alone else plan.clock_distance,
            share=worker.samples_per_wave / plan.samples_per_wave,
            after_step=self._stepped,
        )
        self._flushes = scheme.gate is Gate.FIRST
        self._weight = worker.minibatch / plan.samples_per_wave if scheme.merge.is_step else 1.0
        """Of a minibatch's mean loss: gradients are summed over the waves of all workers, updates are each worker's."""
        self._lock, self.pace = lock or nullcontext(), pace or WavePace()
        self.waits = Waits()
        self.num_waves = 0
        """Waves done."""
        self._inputs: dict[int, LayerState] = {}
        self._outputs: dict[int, LayerState] = {}
        self._losses: list[Tensor] = []
        self._spans: list[WaveSpan] = []
        self._ends_s: list[float] = []
        self._tied = TiedGradients(execution, role.member, transport=transport, device=device)
        self._waiting: dict[int, dict[str, Tensor | None]] = {}
        """Gradients of minibatches whose step waits for those of tied weights on other stages."""
        self._connect(transport)
        self.restart()

    def restart(self) -> None:
        """Let the first minibatches in flight compute with the weights as they are."""
        if not self._flushes:
            self.weights.start(range(1, self.worker.in_flight + 1), own_updates=0, clock=0)

    def train(self, data: WaveData, *, num_waves: int) -> WaveReport:
        """Train so many waves; in the end the worker's pipeline is empty, and all it had to push has been pushed.

        Raises
        ------
        StalenessError
            If a minibatch would compute with weights older than the plan allows.
        LossError
            If a loss is infinite or NaN.
        """
        start_s, wave = time.monotonic(), self.worker.wave
        first, last = self.num_waves * wave + 1, (self.num_waves + num_waves) * wave
        check = self._new_check()
        self.waits, self._losses, self._spans, self._ends_s = Waits(), [], [], []
        self._open(last)
        self.module.train()
        for action in self._order(first, last):
            if action.op is Op.FORWARD:
                self._forward(action.minibatch, data, check)
            else:
                self._backward(action.minibatch)
        self._finish_steps(last)
        self.num_waves += num_waves
        self._drain(last)
        return WaveReport(
            rank=self.role.rank,
            worker=self._index,
            stage=self._stage,
            first_minibatch=first,
            losses=tuple(map(float, self._losses)),
            clock=self._clock(last + 1),
            local_staleness=check.most_own,
            local_bound=check.own_bound,
            global_staleness=check.most_missing,
            global_bound=self.rule.global_staleness,
            gate_s=self.waits.gate_s,
            pipeline_s=self.waits.pipeline_s,
            link_s=self.waits.link_s,
            start_s=start_s,
            end_s=time.monotonic(),
            wave_ends_s=tuple(self._ends_s),
            spans=tuple(self._spans),
        )

    def trained_weights(self) -> dict[str, Tensor]:
        """The weights that the optimizer steps, by global name."""
        return {name: parameter.detach() for name, parameter in self.weights.master.items()}

    def held_weights(self) -> dict[str, Tensor]:
        """Parameters and buffers of the stage by global name, between two calls of `train`.

        With every update that has been pushed: what the others have changed since the last gate is added.
        """
        held: dict[str, Tensor] = {name: parameter.detach() for name, parameter in self.module.global_parameters()}
        return held | self.exchange.missing_changes() | dict(self.module.global_buffers())

    def _parts(self, channel_of: ChannelMaker) -> Iterator[PartExchange]:
        for part in self.execution.layout.parts(self._index, self._stage):
            names = self.execution.held(part, self.module)
            layout = FlatLayout({name: self.weights.master[name] for name in names})
            if layout.numel:
                vector = layout.join(dict(self.weights.master))
                channel = channel_of(part, layout, vector)
                base = layout.empty if self.execution.scheme.merge.is_step else vector
                yield PartExchange(label=part.owner, layout=layout, channel=channel, base=base)

    def _connect(self, transport: Transport) -> None:
        layout, rank, size = self.execution.layout, self.role.rank, self.worker.minibatch
        ranks = [layout.rank_of(self._index, stage) for stage in range(self.worker.num_stages)]
        before = ranks[self._stage - 1] if self._stage > 0 else None
        after = ranks[self._stage + 1] if self._stage + 1 < len(ranks) else None
        depth = self.worker.in_flight

        def outbox(op: Op, target: int | None) -> Outbox | None:
            if target is None:
                return None
            ends = (rank, target)
            return Outbox(transport, op, stage=self._stage, ends=ends, size=size, depth=depth, pace=self.pace)

        def inbox(op: Op, source: int | None) -> Inbox | None:
            if source is None:
                return None
            ends = (source, rank)
            return Inbox(transport, op, stage=self._stage, ends=ends, size=size, device=self.device, pace=self.pace)

        self._activations_in, self._activations_out = inbox(Op.FORWARD, before), outbox(Op.FORWARD, after)
        self._gradients_in, self._gradients_out = inbox(Op.BACKWARD, after), outbox(Op.BACKWARD, before)

    def _new_check(self) -> StalenessCheck:
        scheme = self.execution.scheme
        return StalenessCheck(scheme=scheme, rule=self.rule, worker=self.worker, label=str(self.role))

    def _order(self, first: int, last: int) -> Iterator[WaveAction]:
        depth = self._planned.warmup_depth
        if self._flushes:
            return in_waves(depth, wave=self.worker.wave, first=first, last=last)
        return continuous(depth, first=first, last=last)

    def _open(self, last: int) -> None:
        for inbox in (self._activations_in, self._gradients_in):
            if inbox is not None:
                inbox.open(last)

    def _drain(self, last: int) -> None:
        """Wait for all messages; with a gate at the first minibatch of a wave, the next one's is passed already."""
        for outbox in (self._activations_out, self._gradients_out):
            if outbox is not None:
                outbox.settle(self.waits)
        self._tied.settle()
        if self._flushes:
            self._merge(self.num_waves, last + 1)
        with self.waits.gate():
            self.exchange.settle()
            self.exchange.rest()

    def _forward(self, minibatch: int, data: WaveData, check: StalenessCheck) -> None:
        if self._waiting and self._tied.lag:
            self._finish_steps(minibatch - self._tied.lag)
        ready_s = time.monotonic()
        batch = self._batch(minibatch, data)
        state = self._state(minibatch, batch)
        self._pass_gate(minibatch)
        version = self.weights.versions[minibatch]
        clock = version.clock if self.exchange.parts else self.rule.wave_of(minibatch)
        check.check(minibatch, own_updates=version.own_updates, clock=clock)
        start_s = time.monotonic()
        self.pace.begin()
        with self._lock, precision(self.device, self.execution.training.autocast):
            output = self.weights.forward(minibatch, state)
            if self._activations_out is None:
                output = (self._objective(minibatch, output, batch),)
        self.pace.finish(Op.FORWARD)
        self._inputs[minibatch], self._outputs[minibatch] = state, output
        if self._activations_out is not None:
            self._activations_out.send(minibatch, [tensor.detach() for tensor in output], self.waits)
        self._span(Op.FORWARD, minibatch, ready_s, start_s)

    def _pass_gate(self, minibatch: int) -> None:
        wave = self.rule.wave_of(minibatch)
        if wave > 0 and self.rule.is_gate(minibatch):
            self._merge(wave, minibatch)
        if self._flushes and self.rule.is_gate(minibatch):
            self._start_wave(minibatch)

    def _merge(self, wave: int, minibatch: int) -> None:
        with self.waits.gate():
            self.exchange.await_gate(wave)
        before = self.exchange.clock
        self.pace.begin()
        self.exchange.pass_gate(minibatch)
        if self.execution.scheme.merge.is_step:
            self.pace.finish(UPDATE, self.exchange.clock - before)

    def _start_wave(self, first: int) -> None:
        """Let the first minibatches of a wave compute with the weights as they are: with one step a wave, all."""
        steps_once = self.execution.scheme.merge.is_step
        count = self.worker.wave if steps_once else min(self.worker.in_flight, self.worker.wave)
        clock = self._clock(first)
        own = clock * self.worker.wave if steps_once else first - 1
        self.weights.start(range(first, first + count), own_updates=own, clock=clock)

    def _clock(self, minibatch: int) -> int:
        """The clock of the weights; those that are not exchanged have all waves."""
        return self.exchange.clock if self.exchange.parts else self.rule.wave_of(minibatch)

    def _batch(self, minibatch: int, data: WaveData) -> Batch | None:
        if self._activations_in is not None and self._activations_out is not None:
            return None
        batch = data(self._index, minibatch)
        check_batch(batch, self.worker.minibatch)
        return batch

    def _state(self, minibatch: int, batch: Batch | None) -> LayerState:
        if self._activations_in is None:
            assert batch is not None
            return as_state(self._here(batch[0]))
        state = self._activations_in.take(minibatch, self.waits)
        for tensor in state:
            tensor.requires_grad_(tensor.is_floating_point())
        return state

    def _objective(self, minibatch: int, output: LayerState, batch: Batch | None) -> Tensor:
        assert batch is not None
        loss = self.execution.loss(from_state(output), self._here(batch[1]))
        self._losses.append(loss.detach())
        found = self._losses[-1]
        if self.execution.training.check_finite and not math.isfinite(found):
            raise LossError(f"{self.role}: the loss of minibatch {minibatch} is {float(found)}", rank=self.role.rank)
        return loss * self._weight

    def _here(self, tensors: Tensors) -> Tensors:
        if isinstance(tensors, Tensor):
            return tensors.to(self.device, non_blocking=True)
        return tuple(tensor.to(self.device, non_blocking=True) for tensor in tensors)

    def _backward(self, minibatch: int) -> None:
        ready_s = time.monotonic()
        outputs = [tensor for tensor in self._outputs.pop(minibatch) if tensor.is_floating_point()]
        incoming: LayerState | list[None] = [None]
        if self._gradients_in is not None:
            incoming = self._gradients_in.take(minibatch, self.waits)
        pairs = [(own, given) for own, given in zip(outputs, incoming, strict=True) if own.requires_grad]
        start_s = time.monotonic()
        self.pace.begin()
        with self._lock:
            if pairs:
                torch.autograd.backward([own for own, _ in pairs], [given for _, given in pairs])
        self.pace.finish(Op.BACKWARD)
        gradients = self.weights.take_gradients(minibatch)
        state = self._inputs.pop(minibatch)
        if self._gradients_out is not None:
            to_send = [_gradient(tensor) for tensor in state if tensor.is_floating_point()]
            self._gradients_out.send(minibatch, to_send, self.waits)
        self._span(Op.BACKWARD, minibatch, ready_s, start_s)
        if self.rule.is_last(minibatch) or not self.execution.scheme.merge.is_step:
            self._finish(minibatch, gradients)

    def _finish(self, minibatch: int, gradients: dict[str, Tensor | None]) -> None:
        """Step with the gradients of a minibatch, or end a wave with its own: at once unless weights are tied."""
        self._waiting[minibatch] = gradients
        if self._tied:
            self._tied.send(minibatch, gradients, self.weights.master)
        if self._tied.lag == 0 or (self._flushes and self.rule.is_last(minibatch)):
            self._finish_steps(minibatch)

    def _finish_steps(self, last: int) -> None:
        """Make the steps of minibatches that had to wait for gradients from other stages, and end their waves."""
        for minibatch in [minibatch for minibatch in self._waiting if minibatch <= last]:
            gradients = self._waiting.pop(minibatch)
            if self._tied:
                with self.waits.pipeline():
                    gradients |= self._tied.totals(minibatch)
            self.weights.set_gradients(gradients)
            if not self.execution.scheme.merge.is_step:
                self._step(minibatch)
            if self.rule.is_last(minibatch):
                self.exchange.wave_ended(self.rule.wave_of(minibatch))
                self._ends_s.append(time.monotonic())

    def _step(self, minibatch: int) -> None:
        """Make the local step of a minibatch, and the version that minibatch + N_m will compute with."""
        start_s = time.monotonic()
        self.pace.begin()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._stepped()
        later = minibatch + self.worker.in_flight
        if not self._flushes or self.rule.wave_of(later) == self.rule.wave_of(minibatch):
            self.weights.start([later], own_updates=minibatch, clock=self._clock(minibatch))
        self.pace.finish(UPDATE)
        self._span(UPDATE, minibatch, start_s, start_s)

    def _stepped(self) -> None:
        if self.scheduler is not None:
            self.scheduler.step()

    def _span(self, kind: str, minibatch: int, ready_s: float, start_s: float) -> None:
        self._spans.append(WaveSpan(str(kind), minibatch, ready_s, start_s, time.monotonic()))


UPDATE = "update"
"""The kind of span of a local step."""


def _gradient(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
