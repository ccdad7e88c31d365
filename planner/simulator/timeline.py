"""Timeline: everything about one simulated iteration."""

from dataclasses import dataclass, fields

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.cost.plan_costs import PlanCosts, TaskKind
from stagecut.planner.simulator.engine import graph_of, run
from stagecut.planner.simulator.iteration_graph import NONE, IterationGraph, duration_table
from stagecut.planner.simulator.routes import RouteNames, flow_routes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryCurve:
    """Memory of each device of one device group: a step function."""

    time_s: Floats
    """When the value changes, ascending."""
    memory_bytes: Floats
    """Value from each of these times until the next."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline(IterationGraph):
    """The tasks of one iteration, with their times and what follows from them."""

    start_s: Floats
    """Shape (n,)."""
    end_s: Floats
    """Shape (n,)."""
    links: RouteNames
    """Names of the links each task occupies; a message on a link of its own may have none."""
    iteration_s: float
    busy_s: Floats
    """Forward and backward time of each stage, shape (S,)."""
    memory: tuple[MemoryCurve, ...]
    """The curve of each device group."""
    memory_high_water_bytes: Floats
    """High-water mark of the devices of each stage, shape (S,)."""
    critical_path: tuple[int, ...]
    """Tasks from the start to the end of the iteration, each starting when the previous one ends."""

    @property
    def busy_share(self) -> Floats:
        """Share of the iteration in which each stage computes, shape (S,)."""
        if self.iteration_s > 0:
            return self.busy_s / self.iteration_s
        return np.full_like(self.busy_s, self.num_devices / self.num_stages)

    @property
    def bubble_fraction(self) -> float:
        """Share of all device groups' time in which they do not compute."""
        return 1.0 - float(self.busy_share.sum()) / self.num_devices


def simulate(costs: PlanCosts) -> Timeline:
    """Simulate one plan and record everything."""
    graph = graph_of(costs, micro_batch=costs.variant.micro_batch)
    routes = flow_routes(costs)
    durations_s = duration_table(graph, [costs])[:, graph.cell].T
    start_s, end_s = (times_s[:, 0] for times_s in run(graph, durations_s, routes=routes))
    by_flow = (*routes, ())  # tasks of no flow have the flow NONE
    links = tuple(by_flow[flow] for flow in graph.flow.tolist())
    memory = tuple(_memory_curve(graph, costs, device, start_s, end_s) for device in range(graph.num_devices))
    high_water_bytes = np.array([curve.memory_bytes.max() for curve in memory])
    actions = slice(graph.num_actions)
    busy_s: Floats = np.zeros(graph.num_stages)
    np.add.at(busy_s, graph.stage[actions], durations_s[actions, 0])
    return Timeline(
        **{field.name: getattr(graph, field.name) for field in fields(graph)},
        start_s=start_s,
        end_s=end_s,
        links=links,
        iteration_s=float(end_s.max()),
        busy_s=busy_s,
        memory=memory,
        memory_high_water_bytes=high_water_bytes[graph.device],
        critical_path=_critical_path(graph, links, start_s, end_s),
    )


def _memory_curve(graph: IterationGraph, costs: PlanCosts, device: int, start_s: Floats, end_s: Floats) -> MemoryCurve:
    """Static + saved for each micro-batch from the start of its forward to the end of its backward + working.

    Static bytes are those of all stages of the device group; a stage has its working bytes while it
    computes. The curve has one step at the start and one at the end of each action.
    """
    stages = np.flatnonzero(graph.device == device)
    tasks = np.flatnonzero(np.isin(graph.stage[: graph.num_actions], stages))
    samples = graph.hi[tasks] - graph.lo[tasks]
    forward = graph.kind[tasks] == TaskKind.FORWARD
    own = graph.stage[tasks, None] == stages
    after = np.cumsum(own * np.where(forward, samples, -samples)[:, None], axis=0)
    during = after + own * np.where(forward, 0, samples)[:, None]
    in_flight = np.stack((during, after), axis=1).reshape(-1, len(stages)) / costs.variant.micro_batch
    static_bytes = costs.static_bytes[stages].sum()
    working_bytes = np.stack((costs.working_bytes[graph.stage[tasks]], np.zeros(len(tasks))), axis=1).ravel()
    held_bytes = static_bytes + in_flight @ costs.saved_bytes[stages] + working_bytes
    return MemoryCurve(
        time_s=np.concatenate(([0.0], np.stack((start_s[tasks], end_s[tasks]), axis=1).ravel())),
        memory_bytes=np.concatenate(([static_bytes], held_bytes)),
    )


def _critical_path(graph: IterationGraph, links: RouteNames, start_s: Floats, end_s: Floats) -> tuple[int, ...]:
    """Walk back from the last end to time zero, each time to the first task that ends when the current one starts.

    Among tasks of zero duration the walk can reach a dead end; it then backtracks.
    """
    path = [int(np.argmax(end_s))]
    by_end = np.argsort(end_s, kind="stable")
    ends_s = end_s[by_end]

    def waited_for(task: int) -> list[int]:
        """Predecessors of a task and tasks on its links that end when it starts, in ascending order."""
        own_links, before = set(links[task]), set(graph.predecessors[task].tolist())
        first, last = np.searchsorted(ends_s, start_s[task], "left"), np.searchsorted(ends_s, start_s[task], "right")
        ending = by_end[first:last].tolist()
        return [other for other in ending if other in before or own_links & set(links[other])]

    choices = [waited_for(path[-1])]
    seen = set(path)
    while start_s[path[-1]] > 0:
        task = next((task for task in choices[-1] if task not in seen), NONE)
        if task == NONE:
            path.pop()
            choices.pop()
            continue
        seen.add(task)
        path.append(task)
        choices.append(waited_for(task))
    return tuple(reversed(path))
