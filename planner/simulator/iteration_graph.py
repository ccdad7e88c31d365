"""IterationGraph: the tasks of one iteration, and what each task waits for.

Tasks are numbered so that the number is also the rank that breaks ties in a queue:

1. actions by (device group, position in its list),
2. messages by (producing action, first sample),
3. the gradient all-reduce of each stage,
4. the optimizer step of each stage.

Most schedules give every stage its own device group. Stages that share one do their all-reduces
one after another, lowest stage first, and then their optimizer steps in the same order.

A *flow* is a sequence of tasks that use the same links: the activations over one boundary, the
gradients over one boundary, or the all-reduce of one stage.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.cost.plan_costs import PlanCosts, TaskKind

NONE = -1
"""Stands for "no task" and "no flow" in the arrays of a graph."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IterationGraph:
    """Tasks of one iteration of one pipeline of S stages on D device groups, n in all."""

    num_stages: int
    num_devices: int
    device: Ints
    """Device group of each stage, shape (S,)."""
    num_actions: int
    num_messages: int
    kind: Ints
    """Values of :class:`TaskKind`, shape (n,)."""
    stage: Ints
    """Stage that computes, sends, or reduces its gradients, shape (n,)."""
    lo: Ints
    """First sample, shape (n,)."""
    hi: Ints
    """One past the last sample, shape (n,)."""
    predecessors: Ints
    """Shape (n, 2), `NONE` where there is none. Action: the action before it on its device group; of
    the messages it needs, the one sent last. Message: its action; the message before it in its flow.
    All-reduce: that of the stage before it on the device group, or the last action. Optimizer step: that
    of the stage before it on the device group, or the last all-reduce."""
    flow: Ints
    """Flow of each message and all-reduce, `NONE` for other tasks, shape (n,). Activations over boundary s
    are flow s, gradients over it S - 1 + s, the all-reduce of stage s is flow 2 (S - 1) + s."""
    parts: tuple[tuple[TaskKind, int, int], ...] = ()
    """Kind, stage and samples of actions and messages with times of their own, see :func:`with_parts`."""

    @property
    def num_tasks(self) -> int:
        """The number n of tasks."""
        return len(self.kind)

    @property
    def first_sync(self) -> int:
        """The task that is the first stage's all-reduce."""
        return self.num_actions + self.num_messages

    @property
    def first_update(self) -> int:
        """The task that is the first stage's optimizer step."""
        return self.first_sync + self.num_stages

    @property
    def cell(self) -> Ints:
        """Row of :func:`duration_table` with the duration of each task, shape (n,)."""
        cell = self.kind * self.num_stages + self.stage
        rows = {part: 6 * self.num_stages + 1 + index for index, part in enumerate(self.parts)}
        if rows:
            tasks = zip(self.kind.tolist(), self.stage.tolist(), (self.hi - self.lo).tolist(), strict=True)
            cell = np.array([rows.get(task, usual) for task, usual in zip(tasks, cell.tolist(), strict=True)])
        return cell

    @property
    def num_flows(self) -> int:
        """Number of flows: two per boundary and one per stage."""
        return 3 * self.num_stages - 2


def with_parts(graph: IterationGraph, micro_batch: int = 0) -> IterationGraph:
    """The graph, in which actions and messages of other than `micro_batch` samples have times of their own."""
    samples, first_sync = graph.hi - graph.lo, graph.first_sync
    own = np.flatnonzero(samples[:first_sync] != micro_batch)
    keys = set(zip(graph.kind[own].tolist(), graph.stage[own].tolist(), samples[own].tolist(), strict=True))
    return replace(graph, parts=tuple((TaskKind(kind), stage, size) for kind, stage, size in sorted(keys)))


def duration_table(graph: IterationGraph, costs: Sequence[PlanCosts]) -> Floats:
    """Seconds by kind of task and stage, then zero, then those of the graph's parts, shape (plans, 6 S + 1 + parts).

    All plans must have the structure of the graph.
    """
    return np.array([_durations(graph, cost) for cost in costs])


def _durations(graph: IterationGraph, cost: PlanCosts) -> Floats:
    nothing = np.zeros(1)  # the last stage sends no activations, the first one no gradients
    own_s = cost.own_s if graph.parts else {}
    transfers = (cost.transfer_s, nothing, nothing, cost.transfer_s)
    return np.concatenate(
        (
            *(cost.forward_s, cost.backward_s, *transfers, cost.sync_s, cost.update_s, nothing),
            [own_s[part] for part in graph.parts],
        )
    )
