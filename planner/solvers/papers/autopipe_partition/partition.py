"""AutoPipe's partition of a chain of layers into pipeline stages: balance first, then search.

1. The partition whose slowest stage is fastest, by a dynamic program over boundaries n and stages k,
   with W the forward and backward seconds of the layers before a boundary:

       t(k, n) = min over r < n of max( t(k-1, r), W_k(n) - W_k(r) )

   traced back from the last stage with the smallest r that attains the value, so that late stages are heavy.
2. A breadth-first search from there that visits no partition twice. From every partition,
   - stages after the critical one take over first layers of their successors while those are so slow
     that the critical stage would wait for them;
   - the critical stage gives its first layer to the stages before it, which are rebalanced;
   - or it gives its last layer to the stage after it, and is rebalanced with all stages before it, unless a
     later stage becomes critical.
   A partition whose critical stage is the first one has no successors. The first of the fastest is returned.

Source, time and critical stage: :mod:`stagecut.planner.solvers.papers.autopipe_partition.time`. In the source all
devices are alike; here each stage has its own times, and with equal times this is the published algorithm.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.tolerances import EQUAL_PAPER_TIMES
from stagecut.planner.solvers.papers.autopipe_partition.time import StageTimes, Timings, timings
from stagecut.planner.solvers.search.options import StopCheck

MAX_PARTITIONS = 500
"""Most partitions that one search puts in its queue; half or twice as many change none of 4 plans."""

Stops = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerPartition:
    """The layers of p stages."""

    stops: Ints
    """First layer after each stage, shape (p,)."""
    seconds: float
    """Iteration time in AutoPipe's model."""


def partition(times: StageTimes, num_microbatches: int, *, stopped: StopCheck = lambda: False) -> LayerPartition:
    """The fastest partition found, in AutoPipe's model of time, or the best so far once `stopped` returns true.

    Raises
    ------
    ValueError
        If there are fewer layers than stages.
    """
    timer, balance = _Timer(times, num_microbatches), _Balance(times)
    start = balance.stops(times.num_stages, times.num_layers)
    queue, seen, best, best_s = deque([start]), {start}, start, timer.seconds(start)
    while queue and not stopped():
        stops = queue.popleft()
        for candidate in (stops, *_rebalanced(timer, stops)):
            seconds = timer.seconds(candidate)
            if seconds < best_s * (1 - EQUAL_PAPER_TIMES):
                best, best_s = candidate, seconds
        for moved in _moved(timer, balance, stops):
            if moved not in seen and len(seen) < MAX_PARTITIONS:
                seen.add(moved)
                queue.append(moved)
    return LayerPartition(stops=np.array(best), seconds=float(best_s))


def balanced_partition(times: StageTimes) -> Ints:
    """The first step alone: stops of the partition whose slowest stage is fastest, shape (p,); see `_Balance.stops`."""
    return np.array(_Balance(times).stops(times.num_stages, times.num_layers))


class _Timer:
    """Times each partition once."""

    def __init__(self, times: StageTimes, num_microbatches: int) -> None:
        self.times, self.num_microbatches = times, num_microbatches
        self.tolerance_s = EQUAL_PAPER_TIMES * float(times.work_s[:, -1].max())
        self._known: dict[Stops, Timings] = {}

    def seconds(self, stops: Stops) -> float:
        """Iteration time."""
        return float(self._timing(stops).seconds[0])

    def critical(self, stops: Stops) -> int:
        """The critical stage."""
        return int(self._timing(stops).critical[0])

    def _timing(self, stops: Stops) -> Timings:
        if stops not in self._known:
            self._known[stops] = timings(self.times, np.array([stops]), self.num_microbatches)
        return self._known[stops]


class _Balance:
    """Step 1 for the first k stages and the first n layers, for every k and n."""

    def __init__(self, times: StageTimes) -> None:
        self._work_s = times.work_s
        self._tolerance_s = EQUAL_PAPER_TIMES * float(self._work_s[:, -1].max())
        self._slowest_s = np.full((times.num_stages + 1, times.num_layers + 1), np.inf)
        self._slowest_s[0, 0] = 0.0
        for stage, work_s in enumerate(self._work_s):
            # Seconds of the slowest stage up to this one, for every start and stop of it.
            choices_s = np.maximum(self._slowest_s[stage][:, None], work_s - work_s[:, None])
            choices_s[np.tril_indices(len(work_s))] = np.inf
            self._slowest_s[stage + 1, 1:] = choices_s.min(axis=0)[1:]

    def stops(self, num_stages: int, num_layers: int) -> Stops:
        """Balanced stops of the first stages on the first layers.

        Raises
        ------
        ValueError
            If there are fewer layers than stages.
        """
        if num_layers < num_stages:
            raise ValueError(f"{num_layers} layers cannot fill {num_stages} stages")
        stops, stop = list[int](), num_layers
        for stage in range(num_stages - 1, -1, -1):
            stops.append(stop)
            own_s = self._work_s[stage, stop] - self._work_s[stage, :stop]
            slowest_s = np.maximum(self._slowest_s[stage, :stop], own_s)
            stop = int(np.argmax(slowest_s <= self._slowest_s[stage + 1, stop] + self._tolerance_s))
        return tuple(reversed(stops))


def _rebalanced(timer: _Timer, stops: Stops) -> Iterator[Stops]:
    """The partition, then others in which layers after the critical stage move forward, one more in each.

    The stages after the critical one, up to any of them, must not take longer than the critical one takes
    for as many backwards, beyond the excess already accepted for stages in between.
    """
    times, critical, allowed_s = timer.times, timer.critical(stops), 0.0
    last = critical + 1
    while last < times.num_stages:
        if timer.critical(stops) != critical:
            return
        yield stops
        work_s, backward_s = _own(times.work_s, stops), _own(times.backward_s, stops)[critical]
        excess_s = np.cumsum(work_s[critical + 1 :]) - np.arange(1, times.num_stages - critical) * backward_s
        if excess_s[last - critical - 1] <= allowed_s + timer.tolerance_s:
            last += 1
            continue
        taker = next((s for s in range(critical + 1, last) if _can_take(timer, stops, work_s, s, critical)), None)
        if taker is None:
            return
        stops = (*stops[:taker], stops[taker] + 1, *stops[taker + 1 :])
        allowed_s = max(allowed_s, float(excess_s[taker - critical - 1]))
        last = taker + 1
    yield stops


def _can_take(timer: _Timer, stops: Stops, work_s: Floats, stage: int, critical: int) -> bool:
    """Whether a stage stays faster than the critical one with the first layer of the next, which has others."""
    times, stop = timer.times, stops[stage]
    if stops[stage + 1] - stop < 2:
        return False
    layer_s = times.work_s[stage, stop + 1] - times.work_s[stage, stop]
    receive_s = times.transfer_s[critical - 1, stops[critical - 1]] if critical > 0 else 0.0
    more_s = work_s[stage] + times.transfer_s[stage, stop] + layer_s
    return bool(work_s[critical] + receive_s > more_s + timer.tolerance_s)


def _moved(timer: _Timer, balance: _Balance, stops: Stops) -> Iterator[Stops]:
    """Partitions in which the critical stage has given away its first or its last layer."""
    critical, last_stage = timer.critical(stops), len(stops) - 1
    if critical == 0:
        return
    start, stop = stops[critical - 1], stops[critical]
    if stop - start > 1:
        yield (*balance.stops(critical, start + 1), *stops[critical:])
    if critical < last_stage and stop - 1 > critical:
        moved = (*balance.stops(critical + 1, stop - 1), *stops[critical + 1 :])
        if timer.critical(moved) <= critical:
            yield moved


def _own(before_s: Floats, stops: Stops) -> Floats:
    """Seconds of each stage, shape (p,), from those of the layers before each boundary."""
    row, last = np.arange(len(stops)), np.array(stops)
    own_s: Floats = before_s[row, last] - before_s[row, np.concatenate(([0], last[:-1]))]
    return own_s
