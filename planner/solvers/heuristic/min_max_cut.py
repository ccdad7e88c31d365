"""Cuts of the layers over a given sequence of device groups that make the slowest stage as fast as possible."""

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.core.numerics.tolerances import ALMOST_ZERO, PREFIX_ROUNDING
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.heuristic.sequence_costs import SequenceCosts

ROUNDS, ATTEMPTS = 4, 32
"""32 limits are tried at once, four times, each time closer; with three, one of 12 plans is 8 % slower."""


def min_max_stops(sequence: SequenceCosts, leeway: Floats | None = None) -> Ints | None:
    """Stops of the cut with the fastest slowest stage, shape (S,); None if memory or layers do not suffice.

    With a `leeway`, shape (S,), the time of each stage counts divided by its own.

    From the last stage to the first, each is filled up to a common limit on its time per micro-batch,
    or up to its memory; a search over limits finds the smallest one with which the first stage
    reaches layer 0. So stages get layers in proportion to their speed, and fewer where memory is short.
    """
    # From work shared in proportion to speed up to all layers on the slowest stage, recomputed: 2 F + B <= 2 (F + B).
    all_s = np.maximum(sequence.work_s[:, -1], ALMOST_ZERO)
    low_s, high_s = 1 / np.sum(1 / all_s), 2 * float(all_s.max()) + 2 * float(sequence.transfer_s.sum())
    tables = (sequence.work_s, sequence.work_s + sequence.forward_s, sequence.plain_start, sequence.recomputing_start)
    rule, best = RULES[sequence.variant.schedule], None
    leeway = np.ones(sequence.num_stages) if leeway is None else leeway
    low_s /= float(leeway.max())
    for round_ in range(1 + ROUNDS):
        limits_s = np.geomspace(low_s, high_s, ATTEMPTS) if round_ else np.array([np.inf])
        cuts = np.full(sequence.num_stages + 1, sequence.num_layers)
        index = _fill(*tables, sequence.transfer_s, limits_s, leeway, rule, cuts)
        if index == len(limits_s):
            break
        best = cuts[1:]
        if round_:
            low_s, high_s = limits_s[max(0, index - 1)], limits_s[index]
    return best


Rule = tuple[float, float]
"""Numbers n and m of :func:`work_limit`."""
RULES: dict[Schedule, Rule] = {
    Schedule.ONE_F_ONE_B: (0.0, 0.0),
    Schedule.EAGER_ONE_F_ONE_B: (1.0, 1.0),
    Schedule.GPIPE: (2.0, np.inf),
}
"""A loop over the stages s .. e (docs/bounds.md, "Turns") takes their F + B and twice the messages between them, and
carries 1 + d (e - s) micro-batches: d = 1 under 1F1B, 2 under eager 1F1B. So it takes no more than the limit for each
of them if the sums of F + B - limit and of 2 c - (d - 1) limit make no more than zero. GPipe has no loops, and by its
flush row 2 c is at most the limit.

When every stage had a limit on its own F + B and c instead, plans of `greedy` for 50 drawn problems were 1.3 % slower
on average: 25 of them slower, by up to 18 %, and 7 faster, by up to 4 %."""


@compiled
def work_limit(rule: Rule, limit_s: float, transfer_s: float, excess_s: float) -> float:
    """How long a stage may compute per micro-batch if it also sends messages of `transfer_s` seconds.

    The limit less what loops with later stages take beyond it: the `excess_s` of the next stage and two messages less m
    limits. Negative where n messages alone take too long. What a stage computes less this is its own excess, the
    largest sum over the loops that begin there; minus infinity where no stage follows.
    """
    if rule[0] * transfer_s > limit_s:
        return -1.0
    if limit_s == np.inf or rule[1] == np.inf:
        return limit_s
    return limit_s - max(0.0, excess_s + 2 * transfer_s - rule[1] * limit_s)


@compiled
def _fill(
    work_s: Floats,
    recomputed_s: Floats,
    plain_start: Ints,
    recomputing_start: Ints,
    transfer_s: Floats,
    limits_s: Floats,
    leeway: Floats,
    rule: Rule,
    cuts: Ints,
) -> int:
    """Fill in the boundaries between stages, shape (S + 1,), under the first limit that suffices; returns its index.

    Every stage leaves a layer for each of those before it. Where a limit is too small, the first boundary is above 0
    or a stage is empty.

    Parameters
    ----------
    work_s, recomputed_s
        F + B and 2 F + B of the layers before each boundary on each stage, shape (S, L + 1).
    plain_start, recomputing_start
        First layer with which a stage fits in memory, without and with recomputation, shape (S, L + 1).
    """
    num_stages, num_layers = len(work_s), work_s.shape[1] - 1
    for index in range(len(limits_s)):
        stop, excess_s = num_layers, -np.inf
        for stage in range(num_stages - 1, -1, -1):
            message_s = transfer_s[stage, stop] if stage < num_stages - 1 else 0.0
            limit_s = work_limit(rule, limits_s[index] * leeway[stage], message_s, excess_s)
            plain = max(start_within(work_s[stage], stop, limit_s), plain_start[stage, stop])
            recomputing = max(start_within(recomputed_s[stage], stop, limit_s), recomputing_start[stage, stop])
            start = max(min(plain, recomputing), min(stage, num_layers))
            if start >= stop:
                break
            before_s = work_s[stage] if start >= plain_start[stage, stop] else recomputed_s[stage]
            excess_s = before_s[stop] - before_s[start] - limit_s
            cuts[stage] = stop = start
        if stage == 0 and start == 0 < cuts[1]:
            return index
    return len(limits_s)


@compiled
def start_within(before_s: Floats, stop: int, limit_s: float) -> int:
    """The first layer from which the layers up to a stop take no longer than that."""
    value = before_s[stop] - limit_s - PREFIX_ROUNDING * before_s[-1]
    low, high = 0, len(before_s)
    while low < high:
        middle = (low + high) // 2
        if before_s[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low
