"""The time of one iteration of a 1F1B pipeline, by the recurrences of AutoPipe's planner.

Source: the planner that the authors of :mod:`stagecut.planner.solvers.papers.autopipe` published.

Stage s = 0 .. p - 1 takes F_s forward and B_s backward, a message between s and s + 1 takes c_s, and there are M
micro-batches. Slot 0 of a stage is its first backward, slot k >= 1 a forward and the backward after it; stage s has
M - p + s of them. With f(s, k) and b(s, k) the starts in slot k:

    b(s, 0) = sum of F + sum of c + sum over a > s of (B_a + c_{a-1})
    f(s, k) = max( f(s-1, k-1) + F_{s-1}, b(s, k-1) + B_s ) + c_{s-1}
    b(s, k) = max( b(s+1, k) + B_{s+1},   f(s, k) + F_s )   + c_s

Warm-up forwards are assumed to arrive in time, and a stage waits while it receives. The *critical stage* is the last
one that never waits for another stage in these slots. Its last forward passes straight through the stages after it.
Then stage s has p - s backwards left, and the i-th of them starts at

    d(s, i) = max( d(s, i-1) + B_s, d(s+1, i-1) + B_{s+1} ) + c_s,   and not before d(s-1, i) after the critical stage,

and the last one of the critical stage is followed by one backward on each stage before it.

Added here: the cases M <= p, M > 1,024, and that every stage waits at some time; see docs/papers/autopipe-h.md.
"""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.tolerances import EQUAL_PAPER_TIMES

MAX_MICROBATCHES = 1024
"""Micro-batches whose slots are computed one by one: it bounds the time, and jobs seldom have more."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageTimes:
    """Seconds of one micro-batch on the devices of each of p stages."""

    forward_s: Floats
    """Forward through the layers before each boundary, shape (p, L + 1)."""
    backward_s: Floats
    """Backward through the same layers, shape (p, L + 1)."""
    transfer_s: Floats
    """One way between stages s and s + 1 if the cut is at each boundary, shape (p - 1, L + 1)."""

    @property
    def num_stages(self) -> int:
        """Number of stages, p."""
        return len(self.forward_s)

    @property
    def num_layers(self) -> int:
        """Number of layers, L."""
        return len(self.forward_s[0]) - 1

    @property
    def work_s(self) -> Floats:
        """Forward and backward, shape (p, L + 1)."""
        return self.forward_s + self.backward_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timings:
    """Results for n partitions."""

    seconds: Floats
    """Until the last backward of the first stage, shape (n,)."""
    critical: Ints
    """The critical stage, shape (n,)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Stages:
    """F, B, and c before and after each of p stages, for n partitions; shape (p, n) each."""

    forward_s: Floats
    backward_s: Floats
    receive_s: Floats
    """c_{s-1}, 0 for the first stage."""
    send_s: Floats
    """c_s, 0 for the last one."""

    @property
    def first_backward_s(self) -> Floats:
        """b(s, 0)."""
        after_s = np.cumsum((self.backward_s + self.receive_s)[::-1], axis=0)[::-1]
        start_s: Floats = np.sum(self.forward_s + self.send_s, axis=0) + after_s - self.backward_s - self.receive_s
        return start_s

    @property
    def to_the_end_s(self) -> Floats:
        """From the start of a stage's last backward to the end of the first stage's."""
        return np.cumsum(self.backward_s + self.receive_s, axis=0)


def timings(times: StageTimes, stops: Ints, num_microbatches: int) -> Timings:
    """Iteration times and critical stages of many partitions, stops of shape (n, p), the last one L."""
    stages, num_timed = _stages(times, stops), min(num_microbatches, MAX_MICROBATCHES)
    forward_start_s, backward_start_s, waits_s = _steady_phase(stages, num_timed)
    slot_s = stages.forward_s + stages.backward_s + stages.receive_s + stages.send_s
    never_waits = waits_s <= np.min(waits_s, axis=0) + EQUAL_PAPER_TIMES * num_timed * np.sum(slot_s, axis=0)
    critical = times.num_stages - 1 - np.argmax(never_waits[::-1], axis=0)
    seconds = np.empty(len(stops))
    for stage in np.unique(critical):
        which = np.flatnonzero(critical == stage)
        last_s = _cool_down(stages, stage, which, forward_start_s[stage, which], backward_start_s[stage, which])
        seconds[which] = last_s + stages.to_the_end_s[stage, which]
    seconds = np.maximum(seconds, _without_slots(stages, num_timed))
    further_s = (num_microbatches - num_timed) * slot_s[critical, np.arange(len(stops))]
    return Timings(seconds=seconds + further_s, critical=critical)


def _stages(times: StageTimes, stops: Ints) -> _Stages:
    last, row = stops.T, np.arange(times.num_stages)[:, None]
    first = np.vstack((np.zeros_like(last[:1]), last[:-1]))
    transfer_s, edge = times.transfer_s[row[:-1], last[:-1]], np.zeros((1, len(stops)))
    return _Stages(
        forward_s=times.forward_s[row, last] - times.forward_s[row, first],
        backward_s=times.backward_s[row, last] - times.backward_s[row, first],
        receive_s=np.vstack((edge, transfer_s)),
        send_s=np.vstack((transfer_s, edge)),
    )


def _steady_phase(stages: _Stages, num_microbatches: int) -> tuple[Floats, Floats, Floats]:
    """Starts of each stage's last forward and of the backward after it, and its total waits; shape (p, n) each.

    f(s, k) is computed in step p - s + 2k - 1 and b(s, k) in the next one: in each step every other stage
    is at a forward, and those between at a backward. Row s + 1 holds stage s.
    """
    num_stages, num_partitions = stages.forward_s.shape
    outside = np.full((1, num_partitions), -np.inf)
    forward_s, backward_s = (np.vstack((outside, own, outside)) for own in (stages.forward_s, stages.backward_s))
    send_s, receive_s = (np.vstack((outside, own, outside)) for own in (stages.send_s, stages.receive_s))
    start_f = np.vstack((outside, _last_warm_ups(stages, num_microbatches), outside))
    start_b = np.vstack((outside, stages.first_backward_s, outside))
    waits_s = np.zeros_like(start_f)
    for step in range(2, 2 * num_microbatches):
        at = _every_other(num_stages, num_stages + 1 - step, step + 1 + num_stages - 2 * num_microbatches)
        before = slice(at.start - 1, at.stop - 1, 2)
        ready_s = start_b[at] + backward_s[at]
        start_s = np.maximum(start_f[before] + forward_s[before], ready_s)
        waits_s[at] += start_s - ready_s
        start_f[at] = start_s + receive_s[at]
        at = _every_other(num_stages, num_stages + 2 - step, step + num_stages - 2 * num_microbatches)
        after = slice(at.start + 1, at.stop + 1, 2)
        ready_s = start_f[at] + forward_s[at]
        start_s = np.maximum(start_b[after] + backward_s[after], ready_s)
        waits_s[at] += start_s - ready_s
        start_b[at] = start_s + send_s[at]
    return start_f[1:-1], start_b[1:-1], waits_s[1:-1]


def _every_other(num_stages: int, first: int, least: int) -> slice:
    """Rows of every other stage from `first` on that are at least 0 and `least`, which has the same parity."""
    start = max(first, least, first % 2)
    return slice(start + 1, num_stages + 1, 2)


def _last_warm_ups(stages: _Stages, num_microbatches: int) -> Floats:
    """Start of the last forward of stages that do all forwards before any backward; -inf for all others."""
    starts_s = np.full_like(stages.forward_s, -np.inf)
    those = slice(0, max(0, len(starts_s) - num_microbatches + 1))
    before_s = np.cumsum(stages.forward_s + stages.send_s, axis=0) - stages.forward_s - stages.send_s
    slowest_s = np.maximum.accumulate(stages.forward_s, axis=0)
    starts_s[those] = (before_s + (num_microbatches - 1) * slowest_s)[those]
    return starts_s


def _cool_down(
    stages: _Stages, critical: int, which: Ints, forward_start_s: Floats, backward_start_s: Floats
) -> Floats:
    """Start of the last backward of the critical stage in the partitions `which`, shape (n,).

    d(s, i) is computed in step 2 (s - critical + i) - (s - critical).
    """
    forward_s, send_s = stages.forward_s[critical:, which], stages.send_s[critical:, which]
    backward_s = stages.backward_s[critical:, which]
    start_s = forward_start_s + np.cumsum(forward_s + send_s, axis=0)
    start_s[0] = np.maximum(start_s[0], backward_start_s)
    # d(s + 1, i - 1) and d(s - 1, i) are both of the step before, so one array holds all that a step needs.
    num_left = len(start_s)
    for step in range(2, 2 * num_left - 1):
        last = min(step - 1, 2 * num_left - 2 - step)
        at, after = slice(step % 2, last + 1, 2), slice(step % 2 + 1, last + 2, 2)
        own_s = np.maximum(start_s[at] + backward_s[at], start_s[after] + backward_s[after]) + send_s[at]
        behind = own_s[1 - step % 2 :]
        np.maximum(behind, start_s[1 - step % 2 : last : 2], out=behind)
        start_s[at] = own_s
    last_s: Floats = start_s[0]
    return last_s


def _without_slots(stages: _Stages, num_microbatches: int) -> Floats:
    """Least time of a pipeline in which stages do all forwards, then all backwards; shape (n,); 0 without such stages.

    The first backward of such a stage also waits for the last forward of every such stage after it.
    """
    those = slice(0, max(0, len(stages.forward_s) - num_microbatches + 1))
    way_back_s = stages.to_the_end_s
    after_s = (_last_warm_ups(stages, num_microbatches) + stages.forward_s + way_back_s)[::-1]
    first_s = np.maximum(stages.first_backward_s + way_back_s, np.maximum.accumulate(after_s, axis=0)[::-1])
    all_s = first_s + (num_microbatches - 1) * stages.backward_s
    least_s: Floats = np.max(all_s[those], axis=0, initial=0.0)
    return least_s
