"""Times the layers of a stage as one rank sees them in training."""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle

import torch

from stagecut.executor.machine.run_queue import RunQueue
from stagecut.executor.measure.passes import InFlight, TimedStage
from stagecut.executor.measure.samples import Samples
from stagecut.executor.measure.timings import KINDS, Pass, TimedPass, Timing, done_share
from stagecut.executor.measure.workers import Worker
from stagecut.executor.play.build import build_layer
from stagecut.executor.play.clock import clock_for
from stagecut.executor.play.stage import StageModule, as_state, precision
from stagecut.models.modules.module_chain import ModuleChain


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingOptions:
    """How to time a stage."""

    in_flight: int
    """Micro-batches between forward and backward at any time."""
    repetitions: int
    """Clean timings of each kind."""
    warmup: int
    """Unmeasured warm-up rounds."""
    layers: tuple[int, int]
    """First layer of the stage, and one past the last."""
    autocast: torch.dtype | None


class StageTimes:
    """Times one stage, which it builds with weights of its own."""

    def __init__(self, chain: ModuleChain, options: TimingOptions, *, device: torch.device) -> None:
        self._chain, self._options, self._device = chain, options, device
        start, stop = options.layers
        self._names = [chain.layers[index].name for index in range(start, stop)]
        self.modules = [build_layer(chain, index, seed=0).to(device) for index in range(start, stop)]
        self._stages = {
            Pass.WHOLE: self._timed_stage([self._segment(0, stop - start)]),
            Pass.LAYERS: self._timed_stage([self._segment(i, i + 1) for i in range(stop - start)]),
            Pass.RECOMPUTED: self._timed_stage([self._segment(i, i + 1, recompute=True) for i in range(stop - start)]),
        }

    def timings(
        self,
        samples: Samples,
        worker: Worker,
        *,
        piece: int,
        deadline_s: float = math.inf,
        tell: Callable[[float], None] = lambda _share: None,
    ) -> dict[TimedPass, list[Timing]]:
        """Time one micro-batch size until every worker has enough timings, or time is up.

        Micro-batches are processed first in, first out, so that as many are in flight as in a pipeline; the kinds
        of passes take turns.

        Parameters
        ----------
        samples
            One micro-batch, as it arrives at the stage.
        piece
            Number of this micro-batch size, from 1; earlier ones are done.
        deadline_s
            On the clock of time.monotonic; checked between rounds, once there is a timing of each kind.
        tell
            Called after every round with the share of the work that is done.
        """
        turns = _Turns(self._stages, samples)
        found: dict[TimedPass, list[Timing]] = {kind: [] for kind in KINDS}
        with precision(self._device, self._options.autocast):
            turns.fill(self._options.in_flight - 1)
            for _ in range(self._options.warmup):
                if time.monotonic() < deadline_s:
                    turns.turn()
            worker.meet()
            is_done = False
            while not worker.all_finished(piece):
                for kind, timing in turns.turn():
                    found[kind].append(timing)
                share = min(done_share(each, self._options.repetitions) for each in found.values())
                tell(share)
                if not is_done and (share >= 1 or (share > 0 and time.monotonic() >= deadline_s)):
                    worker.finish()
                    is_done = True
        return found

    def _segment(self, start: int, stop: int, *, recompute: bool = False) -> StageModule:
        return StageModule(
            0, names=self._names[start:stop], layers=self.modules[start:stop], recompute=recompute
        ).train()

    def _timed_stage(self, segments: list[StageModule]) -> TimedStage:
        start, stop = self._options.layers
        return TimedStage(self._chain, segments, start=start, stop=stop, clock=clock_for(self._device))


class _Turns:
    """Alternates the forward of a new micro-batch with the backward of the oldest in flight."""

    def __init__(self, stages: Mapping[Pass, TimedStage], samples: Samples) -> None:
        self._stages, self._samples = stages, samples
        self._passes = cycle(Pass)
        self._in_flight: deque[tuple[Pass, InFlight]] = deque()
        self._queue = RunQueue()

    def fill(self, in_flight: int) -> None:
        """Run so many forwards."""
        for _ in range(in_flight):
            self._forward()

    def turn(self) -> tuple[tuple[TimedPass, Timing], ...]:
        """One forward, one backward."""
        return self._forward(), self._backward()

    def _forward(self) -> tuple[TimedPass, Timing]:
        passed = next(self._passes)
        mark = self._queue.mark()
        held, seconds = self._stages[passed].forward(self._samples)
        share = self._queue.share_since(mark)
        self._in_flight.append((passed, held))
        return TimedPass(passed, True), Timing(seconds=seconds, run_queue_share=share)

    def _backward(self) -> tuple[TimedPass, Timing]:
        passed, held = self._in_flight.popleft()
        mark = self._queue.mark()
        seconds = self._stages[passed].backward(held)
        return TimedPass(passed, False), Timing(seconds=seconds, run_queue_share=self._queue.share_since(mark))


@torch.no_grad()
def arriving(chain: ModuleChain, samples: Samples, *, layer: int, autocast: torch.dtype | None) -> Samples:
    """The samples as they arrive at a layer; the layers before it are built one at a time."""
    state, device = samples.state, samples.state[0].device
    with precision(device, autocast):
        for index in range(layer):
            state = as_state(build_layer(chain, index, seed=0).to(device)(*state))
    return Samples(state=state, targets=samples.targets)
