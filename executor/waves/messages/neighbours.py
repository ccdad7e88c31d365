"""What a stage exchanges with the stages before and behind it."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from stagecut.executor.play.stage import LayerState
from stagecut.executor.transport.interface import Transport
from stagecut.executor.waves.messages.mail import Inbox, Outbox
from stagecut.executor.waves.setting.execution import WaveExecution
from stagecut.executor.waves.setting.layout import Member
from stagecut.executor.waves.setting.waits import Waits
from stagecut.executor.waves.setting.wave_pace import WavePace
from stagecut.planner.simulator.action_lists import Op


class Neighbours:
    """Activations and their gradients, minibatch by minibatch."""

    def __init__(
        self,
        execution: WaveExecution,
        member: Member,
        *,
        transport: Transport,
        device: torch.device,
        pace: WavePace,
    ) -> None:
        index, stage = member
        worker = execution.plan.workers[index]
        ranks = [execution.layout.rank_of(index, other) for other in range(worker.num_stages)]
        own, self.is_first, self.is_last = ranks[stage], stage == 0, stage == len(ranks) - 1
        outbox = partial(Outbox, transport, stage=stage, size=worker.minibatch, depth=worker.in_flight, pace=pace)
        inbox = partial(Inbox, transport, stage=stage, size=worker.minibatch, device=device, pace=pace)
        self._in: dict[Op, Inbox] = {}
        self._out: dict[Op, Outbox] = {}
        if not self.is_first:
            self._in[Op.FORWARD] = inbox(Op.FORWARD, ends=(ranks[stage - 1], own))
            self._out[Op.BACKWARD] = outbox(Op.BACKWARD, ends=(own, ranks[stage - 1]))
        if not self.is_last:
            self._out[Op.FORWARD] = outbox(Op.FORWARD, ends=(own, ranks[stage + 1]))
            self._in[Op.BACKWARD] = inbox(Op.BACKWARD, ends=(ranks[stage + 1], own))

    def open(self, last: int) -> None:
        """Expect minibatches up to the last one."""
        for inbox in self._in.values():
            inbox.open(last)

    def settle(self, waits: Waits) -> None:
        """Wait until all has arrived."""
        for outbox in self._out.values():
            outbox.settle(waits)

    def take(self, op: Op, minibatch: int, waits: Waits) -> LayerState:
        """Wait for activations from the stage before, or gradients from the one behind."""
        return self._in[op].take(minibatch, waits)

    def send(self, op: Op, minibatch: int, tensors: Sequence[Tensor], waits: Waits) -> None:
        """Begin to send activations to the stage behind, or gradients to the one before; at the ends there is none."""
        if op in self._out:
            self._out[op].send(minibatch, tensors, waits)
