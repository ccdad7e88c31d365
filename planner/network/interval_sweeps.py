"""Compiled loops over the stages of an interval network, options by start and stop.

Arguments common to all are those of :class:`stagecut.planner.network.interval_network.IntervalNetwork`; lengths of
transfers have shape (crossings, L). Labels of entries have shape (entries, L), those of exits (exits, L + 1).
"""

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.compiled import compiled


@compiled
def from_source(
    options: Ints,
    begins: Ints,
    allowed: Bools,
    crossings: Ints,
    stage_s: Floats,
    transfer_s: Floats,
    num_entries: int,
    num_exits: int,
) -> tuple[Floats, Floats]:
    """Length of a shortest path from the source to each entry and exit."""
    num_layers = begins.shape[1] - 1
    entries = np.full((num_entries, num_layers), np.inf)
    exits = np.full((num_exits, num_layers + 1), np.inf)
    for start in range(num_layers):
        for number in range(len(crossings)):
            exit_, entry = crossings[number]
            before = 0.0 if exit_ < 0 else exits[exit_, start]
            entries[entry, start] = min(entries[entry, start], before + transfer_s[number, start])
        for number in range(len(options)):
            entry, exit_, placement, behind = options[number]
            before, labels = entries[entry, start], exits[exit_]
            if before == np.inf:
                continue
            first, last = begins[placement, start], begins[placement, start + 1]
            for stage in range(first, last):
                if allowed[stage + behind]:
                    stop = start + 1 + stage - first
                    labels[stop] = min(labels[stop], before + stage_s[stage])
    return entries, exits


@compiled
def to_sink(
    options: Ints,
    begins: Ints,
    allowed: Bools,
    crossings: Ints,
    stage_s: Floats,
    transfer_s: Floats,
    num_entries: int,
    num_exits: int,
) -> tuple[Floats, Floats]:
    """Length of a shortest path from each entry and exit to the sink."""
    num_layers = begins.shape[1] - 1
    entries = np.full((num_entries, num_layers), np.inf)
    exits = np.full((num_exits, num_layers + 1), np.inf)
    exits[:, num_layers] = 0.0
    for start in range(num_layers - 1, -1, -1):
        for number in range(len(options)):
            entry, exit_, placement, behind = options[number]
            least, labels = entries[entry, start], exits[exit_]
            first, last = begins[placement, start], begins[placement, start + 1]
            for stage in range(first, last):
                if allowed[stage + behind]:
                    least = min(least, stage_s[stage] + labels[start + 1 + stage - first])
            entries[entry, start] = least
        for number in range(len(crossings)):
            exit_, entry = crossings[number]
            if exit_ >= 0:
                exits[exit_, start] = min(exits[exit_, start], transfer_s[number, start] + entries[entry, start])
    return entries, exits


@compiled
def shortest_path(
    options: Ints,
    begins: Ints,
    allowed: Bools,
    crossings: Ints,
    stage_s: Floats,
    transfer_s: Floats,
    entries_on: Floats,
    exits_on: Floats,
) -> tuple[Ints, Ints, Ints]:
    """Crossings of a shortest path, their boundaries, and its stages, from the labels of :func:`to_sink`.

    All are empty if there is no path.
    """
    num_layers = begins.shape[1] - 1
    crossed = np.zeros(num_layers, np.int64)
    boundaries = np.zeros(num_layers, np.int64)
    passed = np.zeros(num_layers, np.int64)
    size, exit_, start = 0, -1, 0
    while start < num_layers:
        best, entry = np.inf, -1
        for number in range(len(crossings)):
            length = transfer_s[number, start] + entries_on[crossings[number, 1], start]
            if crossings[number, 0] == exit_ and length < best:
                best, entry = length, crossings[number, 1]
                crossed[size], boundaries[size] = number, start
        if entry < 0:
            return crossed[:0], boundaries[:0], passed[:0]
        best, begin = np.inf, start
        for number in range(len(options)):
            first, last = begins[options[number, 2], begin], begins[options[number, 2], begin + 1]
            for stage in range(first, last if options[number, 0] == entry else first):
                stop = begin + 1 + stage - first
                length = stage_s[stage] + exits_on[options[number, 1], stop]
                if allowed[stage + options[number, 3]] and length < best:
                    best, exit_, start = length, options[number, 1], stop
                    passed[size] = stage
        size += 1
    return crossed[:size], boundaries[:size], passed[:size]


@compiled
def in_time(
    options: Ints,
    begins: Ints,
    allowed: Bools,
    labels: tuple[Floats, Floats, Floats, Floats],
    columns: tuple[Floats, Floats, Floats, Floats, Floats],
    numbers: tuple[float, float, float, float],
) -> Bools:
    """Which of the stages allowed have no row above the limit, with the least that can come before and after them.

    Labels: round trips and forward parts to entries; round trips and prices from exits. Columns: length of a stage, and
    what the rows busy, fill, sync and drain add. Numbers: reward of a stage, budget, relative rounding, limit.
    """
    to, forward_to, on, hosts_on = labels
    length, busy, fill, sync, drain = columns
    reward, budget, rounding, limit = numbers
    left = np.zeros_like(allowed)
    for number in range(len(options)):
        entry, exit_, placement, behind = options[number]
        for start in range(begins.shape[1] - 1):
            before, forward = to[entry, start], forward_to[entry, start]
            if before == np.inf:
                continue
            first, last = begins[placement, start], begins[placement, start + 1]
            for stage in range(first, last):
                stop = start + 1 + stage - first
                way_on = on[exit_, stop] + length[stage]
                if allowed[stage + behind] and way_on < np.inf:
                    hosts = hosts_on[exit_, stop] - reward
                    lowest = before + way_on + max(0.0, fill[stage])
                    lowest = max(lowest, before + hosts + busy[stage])
                    lowest = max(lowest, forward + hosts + sync[stage])
                    lowest = max(lowest, forward + way_on + drain[stage])
                    left[stage + behind] = lowest - budget - rounding * abs(lowest) <= limit
    return left
