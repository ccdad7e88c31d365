"""Seconds of the layers of a stage, as one rank of a training sees them."""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle

import torch

from stagecut.executor.measure.contamination import RunQueue
from stagecut.executor.measure.inspection import computing
from stagecut.executor.measure.passes import Held, TimedStage
from stagecut.executor.measure.processes import Company
from stagecut.executor.measure.readings import KINDS, Kind, Pass, Reading, done_share
from stagecut.executor.measure.samples import Samples
from stagecut.executor.play.build import build_layer
from stagecut.executor.play.clock import clock_for
from stagecut.executor.play.stage import StageModule, as_state
from stagecut.models.module_chain import ModuleChain


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How to time."""

    in_flight: int
    """Micro-batches that are between forward and backward at any time."""
    repetitions: int
    """Clean readings of each kind."""
    warmup: int
    """Rounds that do not count."""
    layers: tuple[int, int]
    """First layer of the stage, and one past the last."""
    autocast: torch.dtype | None


class StageTimes:
    """Times one stage, built here with weights of its own."""

    def __init__(self, chain: ModuleChain, timing: Timing, *, device: torch.device) -> None:
        self._chain, self._timing, self._device = chain, timing, device
        start, stop = timing.layers
        self._names = [chain.layers[index].name for index in range(start, stop)]
        self.modules = [build_layer(chain, index, seed=0).to(device) for index in range(start, stop)]
        self._stages = {
            Pass.WHOLE: self._timed_stage([self._segment(0, stop - start)]),
            Pass.LAYERS: self._timed_stage([self._segment(i, i + 1) for i in range(stop - start)]),
            Pass.RECOMPUTED: self._timed_stage([self._segment(i, i + 1, recompute=True) for i in range(stop - start)]),
        }

    def readings(
        self,
        samples: Samples,
        company: Company,
        *,
        piece: int,
        deadline_s: float = math.inf,
        tell: Callable[[float], None] = lambda _share: None,
    ) -> dict[Kind, list[Reading]]:
        """Run one micro-batch size until every process of the company has enough readings, or time is up.

        Micro-batches come and go first in, first out, so that as many are in flight at any time as in a
        pipeline; the kinds of passes take turns.

        Parameters
        ----------
        samples
            One micro-batch, as it arrives at the stage.
        piece
            Number of the work, from 1: those of earlier sizes are done.
        deadline_s
            Of time.monotonic; looked at between rounds, once there is one of each kind.
        tell
            Told after every round how much of the work is done.
        """
        turns = _Turns(self._stages, samples)
        found: dict[Kind, list[Reading]] = {kind: [] for kind in KINDS}
        with computing(self._device, self._timing.autocast):
            turns.fill(self._timing.in_flight - 1)
            for _ in range(self._timing.warmup):
                if time.monotonic() < deadline_s:
                    turns.turn()
            company.meet()
            is_done = False
            while not company.all_finished(piece):
                for kind, reading in turns.turn():
                    found[kind].append(reading)
                share = min(done_share(each, self._timing.repetitions) for each in found.values())
                tell(share)
                if not is_done and (share >= 1 or (share > 0 and time.monotonic() >= deadline_s)):
                    company.finish()
                    is_done = True
        return found

    def _segment(self, start: int, stop: int, *, recompute: bool = False) -> StageModule:
        return StageModule(
            0, names=self._names[start:stop], layers=self.modules[start:stop], recompute=recompute
        ).train()

    def _timed_stage(self, segments: list[StageModule]) -> TimedStage:
        start, stop = self._timing.layers
        return TimedStage(self._chain, segments, start=start, stop=stop, clock=clock_for(self._device))


class _Turns:
    """One forward of a new micro-batch and one backward of the oldest in flight, again and again."""

    def __init__(self, stages: Mapping[Pass, TimedStage], samples: Samples) -> None:
        self._stages, self._samples = stages, samples
        self._passes = cycle(Pass)
        self._held: deque[tuple[Pass, Held]] = deque()
        self._queue = RunQueue()

    def fill(self, in_flight: int) -> None:
        """Run that many forwards."""
        for _ in range(in_flight):
            self._forward()

    def turn(self) -> tuple[tuple[Kind, Reading], ...]:
        """One forward, one backward."""
        return self._forward(), self._backward()

    def _forward(self) -> tuple[Kind, Reading]:
        passed = next(self._passes)
        mark = self._queue.mark()
        held, seconds = self._stages[passed].forward(self._samples)
        share = self._queue.share_since(mark)
        self._held.append((passed, held))
        return Kind(passed, True), Reading(seconds=seconds, run_queue_share=share)

    def _backward(self) -> tuple[Kind, Reading]:
        passed, held = self._held.popleft()
        mark = self._queue.mark()
        seconds = self._stages[passed].backward(held)
        return Kind(passed, False), Reading(seconds=seconds, run_queue_share=self._queue.share_since(mark))


@torch.no_grad()
def arriving(chain: ModuleChain, samples: Samples, *, layer: int, autocast: torch.dtype | None) -> Samples:
    """The samples as they arrive at a layer, those before it built one at a time."""
    state, device = samples.state, samples.state[0].device
    with computing(device, autocast):
        for index in range(layer):
            state = as_state(build_layer(chain, index, seed=0).to(device)(*state))
    return Samples(state=state, targets=samples.targets)
