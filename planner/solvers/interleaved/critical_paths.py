"""Rows from critical paths: the longest chain of work of one cut is a lower bound on all cuts of its shape.

Which task waits for which, contention aside, depends on the shape only. So the tasks on a path through that graph, up
to the last backward of a device group, and a way home from there take time one after another whatever the cut; their
sum is linear in the costs of the stages.
"""

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.simulator.compilation import interleaved_graph
from stagecut.planner.simulator.engine import run
from stagecut.planner.simulator.iteration_graph import NONE
from stagecut.planner.solvers.interleaved.costs import Cost
from stagecut.planner.solvers.interleaved.shapes import Shape

COSTS = {
    TaskKind.FORWARD: (Cost.FORWARD, 0),
    TaskKind.BACKWARD: (Cost.BACKWARD, 0),
    TaskKind.SEND_FORWARD: (Cost.TRANSFER, 0),
    TaskKind.SEND_BACKWARD: (Cost.TRANSFER, -1),
}
"""What a task costs, and of which stage, counted from its own: a transfer is that behind a stage."""


class CriticalPaths:
    """The rows of one shape; `ways_home` from the last backward of each device group have shape (n, S, costs)."""

    def __init__(self, shape: Shape, ways_home: list[Floats]) -> None:
        order = shape.order
        graph = interleaved_graph(order.num_devices, order.chunks, order.num_microbatches, 1)
        self._graph, self._ways_home = graph, ways_home
        self._shape = shape.num_stages, len(Cost)
        timed = graph.kind[: graph.first_sync]
        self._cost = np.array([COSTS[TaskKind(kind)][0] for kind in timed])
        self._stage = graph.stage[: graph.first_sync] + [COSTS[TaskKind(kind)][1] for kind in timed]
        last = (timed == TaskKind.BACKWARD) & (graph.hi[: graph.first_sync] == graph.hi.max())
        self._last = [
            int(np.flatnonzero(last & (graph.stage[: graph.first_sync] == s))[0]) for s in range(len(ways_home))
        ]

    def row(self, costs: Floats) -> Floats:
        """The largest row at a cut with these costs of its stages, shape (S, costs), as a form of that shape."""
        seconds = np.zeros(self._graph.num_tasks)
        seconds[: len(self._cost)] = costs[self._stage, self._cost]
        _, ends_s = run(self._graph, seconds[:, None])
        homes = [ways[np.argmax(np.tensordot(ways, costs, axes=2))] for ways in self._ways_home]
        values = [ends_s[last, 0] + np.sum(home * costs) for last, home in zip(self._last, homes, strict=True)]
        device = int(np.argmax(values))
        row: Floats = homes[device] + self._path(self._last[device], ends_s[:, 0])
        return row

    def _path(self, task: int, ends_s: Floats) -> Floats:
        """The tasks up to this one, each the later one of those that the next waits for."""
        form, before = np.zeros(self._shape), self._graph.predecessors
        while task != NONE:
            form[self._stage[task], self._cost[task]] += 1
            first, second = before[task]
            task = int(first if second == NONE or (first != NONE and ends_s[first] >= ends_s[second]) else second)
        return form
