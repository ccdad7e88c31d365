"""Times without contention, as array code over (tasks of one level) x (plans).

An action's level is the length of the longest chain of actions ending with it. Actions of one level
do not depend on each other, so a level takes a handful of array operations, the messages of its
actions included. Tasks are stored level after level, so that all but one of these work on slices.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.simulator.iteration_graph import IterationGraph


class ActionLevel(NamedTuple):
    """One level: its actions (or all-reduces, or optimizer steps), then their messages."""

    gather: Ints
    """Rows to fetch into scratch memory: both predecessors of each action, then that of each first message."""
    fetched: slice
    """All of these in scratch memory."""
    before: slice
    """The previous actions in scratch memory."""
    arrived: slice
    """The messages that actions need, in scratch memory."""
    followed: slice
    """The messages that first messages follow, in scratch memory."""
    actions: slice
    """Rows of the level's actions, those that send most messages first."""
    senders: slice
    """Rows of the actions that send anything."""
    first_messages: slice
    """Rows of the first message of each sender."""
    further_messages: tuple[tuple[slice, slice], ...]
    """Rows of the second messages with those of the first ones before them, and so on."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LevelOrder:
    """Order of the tasks of a graph in memory."""

    task: Ints
    """Task of each row, shape (n,)."""
    row: Ints
    """Row of each task and, at `NONE`, the row that is always zero, shape (n + 1,)."""
    cell: Ints
    """Row of :func:`stagecut.planner.simulator.iteration_graph.duration_table` for each row, shape (n + 1,)."""
    levels: tuple[ActionLevel, ...]

    @property
    def scratch_rows(self) -> int:
        """Rows of scratch memory that the largest level needs."""
        return max(len(level.gather) for level in self.levels)


@lru_cache
def level_order(graph: IterationGraph) -> LevelOrder:
    """Sort the tasks by level, number of the message within its action, most messages first, task."""
    level, number, sends = _sort_keys(graph)
    task = np.lexsort((-sends, number, level))
    row = np.full(graph.num_tasks + 1, graph.num_tasks)
    row[task] = np.arange(graph.num_tasks)
    return LevelOrder(
        task=task,
        row=row,
        cell=np.append(graph.cell[task], 6 * graph.num_stages),
        levels=tuple(
            _level(row[graph.predecessors[task[parts[0].start : parts[-1].stop]]], parts)
            for parts in _levels(level[task], number[task])
        ),
    )


def evaluate(order: LevelOrder, rows_s: Floats) -> None:
    """Replace durations by end times, as if every flow had its own links.

    `rows_s` has the seconds of the task of each row, then a row of zeros; shape (n + 1, plans) or (n + 1,).
    """
    take, maximum, add = rows_s.take, np.maximum, np.add
    scratch = np.empty((order.scratch_rows, *rows_s.shape[1:]))
    for gather, fetched, before, arrived, followed, actions, senders, first_messages, further in order.levels:
        take(gather, 0, scratch[fetched], "clip")
        start = scratch[before]  # action: max(end of the previous one, last message needed) + its duration
        maximum(start, scratch[arrived], out=start)
        end = rows_s[actions]
        add(end, start, out=end)
        start = scratch[followed]
        if len(start):  # first message: max(end of its action, end of the message before it in its flow)
            maximum(start, rows_s[senders], out=start)
            end = rows_s[first_messages]
            add(end, start, out=end)
        for earlier, later in further:  # further messages follow the one before
            end = rows_s[later]
            add(end, rows_s[earlier], out=end)


def _sort_keys(graph: IterationGraph) -> tuple[Ints, Ints, Ints]:
    """For each task: level, number of the message within its action (else 0), messages of the same action."""
    producer = graph.predecessors[graph.num_actions : graph.first_sync, 0]
    sends = np.bincount(producer, minlength=graph.num_actions)
    first_message = np.cumsum(sends) - sends
    number = np.arange(graph.num_messages) - first_message[producer] + 1
    # All-reduces, then optimizer steps, of stages that share a device group follow one another: a level for each turn.
    sync = graph.level.max() + 1 + graph.turn
    update = sync + graph.turn.max() + 1
    tail = np.zeros(graph.num_stages, dtype=np.int64)
    return (
        np.concatenate((graph.level, graph.level[producer], sync, update)),
        np.concatenate((np.zeros_like(sends), number, tail, tail)),
        np.concatenate((sends, sends[producer], tail, tail)),
    )


def _levels(level: Ints, number: Ints) -> Iterator[list[slice]]:
    """Rows of each level: its actions, their first messages, their second messages, and so on."""
    cuts = np.flatnonzero((level[1:] != level[:-1]) | (number[1:] != number[:-1])) + 1
    parts: list[slice] = []
    for start, stop in pairwise([0, *cuts.tolist(), len(level)]):
        if number[start] == 0 and parts:
            yield parts
            parts = []
        parts.append(slice(start, stop))
    yield parts


def _level(predecessors: Ints, parts: list[slice]) -> ActionLevel:
    """A level, from the rows of the predecessors of each of its rows, shape (rows, 2)."""
    actions, *messages = parts
    first, size = actions.start, actions.stop - actions.start
    senders = messages[0].stop - messages[0].start if messages else 0
    # Actions that send most come first, so those that send a second message are a prefix of those that send a first.
    later = [(slice(a.start, a.start + b.stop - b.start), b) for a, b in pairwise(messages)]
    return ActionLevel(
        gather=np.concatenate((predecessors[:size].T.ravel(), predecessors[size : size + senders, 1])),
        fetched=slice(0, 2 * size + senders),
        before=slice(0, size),
        arrived=slice(size, 2 * size),
        followed=slice(2 * size, 2 * size + senders),
        actions=actions,
        senders=slice(first, first + senders),
        first_messages=messages[0] if messages else slice(0, 0),
        further_messages=tuple(later),
    )
