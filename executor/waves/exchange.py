"""What a stage gives the other workers at the end of a wave, and takes from them at a gate."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add

import torch
from torch import Tensor
from torch.optim import Optimizer

from stagecut.executor.play.stage import StageModule
from stagecut.executor.waves.carriers.channels import Channel, Ended
from stagecut.executor.waves.carriers.flat import FlatLayout
from stagecut.executor.waves.carriers.shard import Pulled
from stagecut.executor.waves.gradients import Gradients
from stagecut.executor.waves.setting.execution import WaveExecution
from stagecut.executor.waves.setting.layout import Member, Part
from stagecut.executor.waves.setting.schemes import Merge
from stagecut.executor.waves.setting.waits import Transfer
from stagecut.executor.waves.weights import StageWeights


@dataclass(slots=True, kw_only=True)
class PartExchange:
    """One part of a stage's weights and its channel."""

    part: Part
    layout: FlatLayout
    channel: Channel
    clock: int = 0
    """Of the stage's copy."""
    base: Tensor
    """The weights at the end of the last wave, with what was merged since."""
    asked: bool = False
    pulled: Pulled | None = None
    """What has come and is not merged."""
    gradients: list[Tensor] = field(default_factory=list)
    """With `STEP`, those of the last waves below the clock for which other parts lack theirs."""
    own: dict[int, Tensor] = field(default_factory=dict)
    """With `REPLACE`, the stage's own changes of the waves that the global weights did not hold yet."""


ChannelMaker = Callable[[Part, FlatLayout, Tensor], Channel]
"""Makes the channel of a part from the places of its weights in a vector, and that vector."""


def parts_of(
    execution: WaveExecution, member: Member, stage: StageModule, channel_of: ChannelMaker
) -> list[PartExchange]:
    """The parts of a stage with trained weights, each with a channel of its own."""
    found = []
    parameters = dict(stage.global_parameters())
    for part in execution.layout.parts(*member):
        layout = FlatLayout({name: parameters[name] for name in execution.held(part, stage)})
        if layout.numel:
            vector = layout.join(dict(parameters))
            channel = channel_of(part, layout, vector)
            base = layout.empty if execution.scheme.merge.is_step else vector
            found.append(PartExchange(part=part, layout=layout, channel=channel, base=base))
    return found


class StageExchange:
    """All parts of one stage.

    Parameters
    ----------
    clock_distance
        D.
    before_step, after_step
        Called with `Merge.STEP` around each step of the optimizer, the first with the wave and its gradients.
    share
        The part of a wave's samples that is the worker's own: the weight of its changes in their mean.
    """

    def __init__(
        self,
        parts: Sequence[PartExchange],
        weights: StageWeights,
        optimizer: Optimizer,
        *,
        merge: Merge,
        clock_distance: int,
        share: float,
        before_step: Callable[[int, Gradients], object],
        after_step: Callable[[], object],
    ) -> None:
        self.parts, self._weights, self._optimizer = parts, weights, optimizer
        self._merge, self._clock_distance, self._share = merge, clock_distance, share
        self._before_step, self._after_step = before_step, after_step
        self.transfers: list[Transfer] = []
        """Those that have ended."""

    @property
    def clock(self) -> int:
        """Of the stage's weights: that of the oldest part."""
        return min((part.clock for part in self.parts), default=0)

    def wave_ended(self, wave: int) -> None:
        """Push a wave, and ask for what the gate of the next one needs."""
        for part in self.parts:
            vector = self._pushed(part, wave)
            self._note("push" if part.part.owner else "all-reduce", part, wave, part.channel.push(wave, vector))
            self._ask(part, wave + 1)

    def await_gate(self, wave: int) -> None:
        """Wait for what the weights must hold at the gate of a wave."""
        least = self._least(wave)
        for part in self.parts:
            if part.clock < least:
                self._ask(part, wave)
                part.pulled = self._answer(part)

    def pass_gate(self, wave: int, minibatch: int) -> None:
        """Merge what has come into the weights of a minibatch and of those behind it."""
        if self._merge is Merge.STEP:
            self._step(wave)
            return
        for part in self.parts:
            if part.pulled is not None:
                pulled, part.pulled = part.pulled, None
                self._merge_into(part, pulled, minibatch)

    def settle(self) -> None:
        """Wait for what has been asked for, and keep it for the next gate."""
        for part in self.parts:
            if part.asked:
                part.pulled = self._answer(part)

    def rest(self) -> None:
        """End all traffic until the stage trains again."""
        for part in self.parts:
            part.channel.rest()

    def missing_changes(self) -> dict[str, Tensor]:
        """With a delayed all-reduce, the weights as they would be with all that the others have pushed."""
        found: dict[str, Tensor] = {}
        for part in self.parts:
            missing = part.channel.missing()
            if missing is not None:
                own = part.layout.split(missing + part.pulled.content if part.pulled else missing)
                found |= {name: self._weights.master[name].detach() + change for name, change in own.items()}
        return found

    def _least(self, wave: int) -> int:
        return max(0, wave - self._clock_distance)

    def _ask(self, part: PartExchange, wave: int) -> None:
        least = self._least(wave)
        if part.clock < least and not part.asked and part.pulled is None:
            asked = part.channel.ask(have=part.clock, least=least)
            self._note("pull", part, wave, asked if part.part.owner else None)
            part.asked = True

    def _note(self, kind: str, part: PartExchange, wave: int, ended: Ended) -> None:
        """Remember a transfer when it has ended."""
        start_s = time.monotonic()

        def note(_: object) -> None:
            self.transfers.append(Transfer(kind, wave, part.part.partner, start_s, time.monotonic()))

        if ended is not None:
            ended.add_done_callback(note)

    def _answer(self, part: PartExchange) -> Pulled:
        pulled = part.pulled or part.channel.answer()
        part.asked = False
        return pulled

    @torch.no_grad()
    def _pushed(self, part: PartExchange, wave: int) -> Tensor:
        master = self._weights.master
        if self._merge is Merge.STEP:
            gradients = part.layout.join({name: master[name].grad for name in part.layout.names})
            for name in part.layout.names:
                master[name].grad = None
            return gradients
        now = part.layout.join(dict(master))
        change, part.base = now - part.base, now
        if self._merge is Merge.REPLACE:
            part.own[wave] = change
            return change * self._share
        return change

    def _merge_into(self, part: PartExchange, pulled: Pulled, minibatch: int) -> None:
        part.clock = pulled.clock
        if self._merge is Merge.ADD:
            changes = part.layout.split(pulled.content)
            part.base += pulled.content
            self._weights.merge(minibatch, lambda name, old: old + changes[name], part.layout.names, clock=self.clock)
            return
        part.own = {wave: change for wave, change in part.own.items() if wave >= pulled.clock}
        part.base = reduce(add, part.own.values(), pulled.content)
        values = part.layout.split(part.base)
        self._weights.merge(minibatch, lambda name, _: values[name].clone(), part.layout.names, clock=self.clock)

    def _step(self, gate: int) -> None:
        """One step of the optimizer for each wave that has come for all parts, so that none is ahead of the others.

        If gradients are clipped, that is exactly the wave that the gate needs.
        """
        for part in self.parts:
            if part.pulled is not None:
                part.gradients += part.pulled.content.view(part.pulled.clock - part.clock, -1).unbind()
                part.clock, part.pulled = part.pulled.clock, None
        for _ in range(min((len(part.gradients) for part in self.parts), default=int(self._least(gate) > 0))):
            for part in self.parts:
                self._weights.set_gradients(part.layout.split(part.gradients.pop(0)))
            own = {name: weight.grad for name, weight in self._weights.master.items()}
            self._before_step(self._least(gate) - 1, own)
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
            self._after_step()
