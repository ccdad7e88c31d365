"""One stage of a virtual worker at work."""

import time
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import Tensor

from stagecut.executor.play.batch import Batch
from stagecut.executor.play.optimizers import build_optimizer
from stagecut.executor.play.stage import LayerState, precision
from stagecut.executor.transport.interface import Transport
from stagecut.executor.waves.exchange import ChannelMaker, StageExchange, parts_of
from stagecut.executor.waves.gradients import Gradients, StageGradients, gradient_of
from stagecut.executor.waves.messages.neighbours import Neighbours
from stagecut.executor.waves.minibatches import Minibatches
from stagecut.executor.waves.setting.data import WaveData
from stagecut.executor.waves.setting.execution import WaveExecution
from stagecut.executor.waves.setting.layout import WaveRole
from stagecut.executor.waves.setting.order import continuous, in_waves
from stagecut.executor.waves.setting.report import WaveReport
from stagecut.executor.waves.setting.schemes import Gate, Merge
from stagecut.executor.waves.setting.staleness import StalenessCheck
from stagecut.executor.waves.setting.waits import GATE, UPDATE, Waits, WaveSpan
from stagecut.executor.waves.setting.wave_pace import WavePace
from stagecut.executor.waves.weights import StageWeights
from stagecut.planner.simulator.action_lists import Op


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
        in_flight = worker.in_flight > 1 and not scheme.merge.is_step
        self.weights = StageWeights(self.module, versions=in_flight)
        self.optimizer = build_optimizer(self.weights.master, execution.training.optimizer)
        scheduler = execution.training.scheduler
        self.scheduler = None if scheduler is None else scheduler(self.optimizer)
        self._gradients = StageGradients(execution, role, transport=transport, weights=self.weights.master)
        alone = len(plan.workers) == 1
        self.exchange = StageExchange(
            [] if alone and scheme.merge is Merge.ADD else parts_of(execution, role.member, self.module, channel_of),
            self.weights,
            self.optimizer,
            merge=scheme.merge,
            clock_distance=0 if alone else plan.clock_distance,
            share=worker.samples_per_wave / plan.samples_per_wave,
            before_step=self._gradients.clip_wave,
            after_step=self._stepped,
        )
        self._flushes = scheme.gate is Gate.FIRST
        self._minibatches = Minibatches(execution, role, device)
        self._lock, self.pace = lock or nullcontext(), pace or WavePace()
        self.waits = Waits()
        self.num_waves = 0
        """Waves done."""
        self._inputs: dict[int, LayerState] = {}
        self._outputs: dict[int, LayerState] = {}
        self._spans: list[WaveSpan] = []
        self._ends_s: list[float] = []
        self._neighbours = Neighbours(execution, role.member, transport=transport, device=device, pace=self.pace)
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
        scheme, others = self.execution.scheme, self.execution.plan.others(self._index)
        other_waves = tuple(dict.fromkeys(other.wave for other in others))
        check = StalenessCheck(scheme, self.rule, self.worker, other_waves, label=str(self.role))
        self.waits, self._minibatches.losses, self._spans, self._ends_s = Waits(), [], [], []
        self.exchange.transfers = []
        self._neighbours.open(last)
        self.module.train()
        depth, order = self._planned.warmup_depth, partial(in_waves, wave=wave) if self._flushes else continuous
        for action in order(depth, first=first, last=last):
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
            losses=tuple(map(float, self._minibatches.losses)),
            clock=self._clock(last + 1),
            local_staleness=check.most_own,
            local_bound=check.own_bound,
            global_staleness=check.most_missing,
            global_bound=check.most_allowed,
            gate_s=self.waits.gate_s,
            pipeline_s=self.waits.pipeline_s,
            link_s=self.waits.link_s,
            start_s=start_s,
            end_s=time.monotonic(),
            wave_ends_s=tuple(self._ends_s),
            spans=tuple(self._spans),
            transfers=tuple(self.exchange.transfers),
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

    def _drain(self, last: int) -> None:
        """Wait for all messages; with a gate at the first minibatch of a wave, the next one's is passed already."""
        self._neighbours.settle(self.waits)
        self._gradients.settle()
        if self._flushes:
            self._merge(self.num_waves, last + 1, time.monotonic())
        with self.waits.gate():
            self.exchange.settle()
            self.exchange.rest()

    def _forward(self, minibatch: int, data: WaveData, check: StalenessCheck) -> None:
        if self._gradients.lag:
            self._finish_steps(minibatch - self._gradients.lag)
        ready_s = time.monotonic()
        ends = self._neighbours.is_first or self._neighbours.is_last
        batch = self._minibatches.batch(minibatch, data) if ends else None
        if self._flushes:  # nothing is awaited there: steps are over when the first inputs of a wave arrive
            self._pass_gate(minibatch, ready_s)
            ready_s = time.monotonic()
        state = self._state(minibatch, batch)
        if not self._flushes:
            self._pass_gate(minibatch, ready_s)
        version = self.weights.versions[minibatch]
        clock = version.clock if self.exchange.parts else self.rule.wave_of(minibatch)
        check.check(minibatch, own_updates=version.own_updates, clock=clock)
        start_s = time.monotonic()
        self.pace.begin()
        with self._lock, precision(self.device, self.execution.training.autocast):
            output = self.weights.forward(minibatch, state)
            if batch is not None and self._neighbours.is_last:
                output = (self._minibatches.objective(minibatch, output, batch),)
        self.pace.finish(Op.FORWARD)
        self._inputs[minibatch], self._outputs[minibatch] = state, output
        self._neighbours.send(Op.FORWARD, minibatch, [tensor.detach() for tensor in output], self.waits)
        self._span(Op.FORWARD, minibatch, ready_s, start_s)

    def _state(self, minibatch: int, batch: Batch | None) -> LayerState:
        """The stage's inputs, leaves of its graph."""
        if batch is not None and self._neighbours.is_first:
            return self._minibatches.inputs(batch)
        state = self._neighbours.take(Op.FORWARD, minibatch, self.waits)
        for tensor in state:
            tensor.requires_grad_(tensor.is_floating_point())
        return state

    def _pass_gate(self, minibatch: int, ready_s: float) -> None:
        wave = self.rule.wave_of(minibatch)
        passed = self.num_waves if self._flushes else 0  # when the call of `train` before ended
        if wave > passed and self.rule.is_gate(minibatch):
            self._merge(wave, minibatch, ready_s)
        if self._flushes and self.rule.is_gate(minibatch):
            self._start_wave(minibatch)

    def _merge(self, wave: int, minibatch: int, ready_s: float) -> None:
        arrived_s = time.monotonic()
        with self.waits.gate():
            self.exchange.await_gate(wave)
        start_s = time.monotonic()
        self._spans.append(WaveSpan(GATE, wave, wave, ready_s, arrived_s, start_s))
        before = self.exchange.clock
        self.pace.begin()
        self.exchange.pass_gate(wave, minibatch)
        if self.execution.scheme.merge.is_step:
            self.pace.finish(UPDATE, self.exchange.clock - before)
            self._spans.append(WaveSpan(UPDATE, wave - 1, wave - 1, start_s, start_s, time.monotonic()))

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

    def _backward(self, minibatch: int) -> None:
        ready_s = time.monotonic()
        outputs = [tensor for tensor in self._outputs.pop(minibatch) if tensor.is_floating_point()]
        incoming: LayerState | list[None] = [None]
        if not self._neighbours.is_last:
            incoming = self._neighbours.take(Op.BACKWARD, minibatch, self.waits)
        pairs = [(own, given) for own, given in zip(outputs, incoming, strict=True) if own.requires_grad]
        start_s = time.monotonic()
        self.pace.begin()
        with self._lock:
            if pairs:
                torch.autograd.backward([own for own, _ in pairs], [given for _, given in pairs])
        self.pace.finish(Op.BACKWARD)
        gradients = self.weights.take_gradients(minibatch)
        state = self._inputs.pop(minibatch)
        to_send = (
            [] if self._neighbours.is_first else [gradient_of(tensor) for tensor in state if tensor.is_floating_point()]
        )
        self._neighbours.send(Op.BACKWARD, minibatch, to_send, self.waits)
        self._span(Op.BACKWARD, minibatch, ready_s, start_s)
        if self.rule.is_last(minibatch) or not self.execution.scheme.merge.is_step:
            self._finish(minibatch, gradients)

    def _finish(self, minibatch: int, gradients: Gradients) -> None:
        """Step with the gradients of a minibatch, or end a wave with its own, unless other stages have a say."""
        with self.waits.pipeline():
            self._gradients.put(minibatch, gradients)
        if self._gradients.lag == 0 or (self._flushes and self.rule.is_last(minibatch)):
            self._finish_steps(minibatch)

    def _finish_steps(self, last: int) -> None:
        """Make the steps of minibatches that had to wait for gradients from other stages, and end their waves."""
        for minibatch in self._gradients.waiting(last):
            with self.waits.pipeline():
                gradients = self._gradients.take(minibatch)
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
        self.weights.before_step()
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
        wave = self.rule.wave_of(minibatch)
        self._spans.append(WaveSpan(str(kind), wave, minibatch, ready_s, start_s, time.monotonic()))
