"""What limits a plan: the device group, the link and the memory closest to their limits."""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats
from stagecut.planner.cost.plan_costs import PlanCosts, TaskKind
from stagecut.planner.simulator.bounds import bound_rows
from stagecut.planner.simulator.timeline import Timeline

COMPUTE = (TaskKind.FORWARD, TaskKind.BACKWARD)
SENDS = {TaskKind.SEND_FORWARD: 1, TaskKind.SEND_BACKWARD: -1}
"""Step from the stage that sends to the one that receives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestRow:
    """The lower bound closest to the iteration time."""

    family: str
    """Name as in :mod:`stagecut.planner.simulator.bounds`."""
    index: int
    """Stage or boundary that the row belongs to."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """For how long one direction of a link is in use."""

    name: str
    busy_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Binding:
    """Where an iteration of D device groups spends its time, its links and its memory."""

    iteration_s: float
    largest_row: LargestRow
    critical_s: Floats
    """Seconds of the critical path in which each device group computes, shape (D,)."""
    communication_s: float
    """Seconds of the critical path spent in transfers and all-reduces."""
    busy_s: Floats
    """Seconds in which each device group computes, shape (D,)."""
    links: tuple[LinkUse, ...]
    """All links in use, the busiest first."""
    memory_bytes: Floats
    """High-water mark of each device group, shape (D,)."""
    limit_bytes: Floats
    """Shape (D,)."""

    @property
    def slowest(self) -> int:
        """The device group on which the critical path computes longest."""
        return int(np.argmax(self.critical_s))

    @property
    def fullest(self) -> int:
        """The device group whose memory is closest to its limit."""
        return int(np.argmax(self.memory_bytes / self.limit_bytes))

    @property
    def num_devices(self) -> int:
        """D."""
        return len(self.busy_s)

    def share(self, seconds: float) -> float:
        """Seconds as a share of the iteration; 1 if the iteration takes no time."""
        return float(seconds) / self.iteration_s if self.iteration_s > 0 else 1.0


def what_binds(costs: PlanCosts, timeline: Timeline) -> Binding:
    """Find what limits an iteration, from the costs and the timeline of the same plan."""
    num_devices = costs.num_devices
    device, takes_s = timeline.stage % num_devices, timeline.end_s - timeline.start_s
    computes = np.isin(timeline.kind, COMPUTE)
    critical = np.zeros(len(takes_s), dtype=bool)
    critical[list(timeline.critical_path)] = True
    communicates = ~computes & (timeline.kind != TaskKind.UPDATE)

    def per_device(chosen: Bools) -> Floats:
        seconds: Floats = np.zeros(num_devices)
        np.add.at(seconds, device[chosen], takes_s[chosen])
        return seconds

    return Binding(
        iteration_s=timeline.iteration_s,
        largest_row=_largest_row(costs),
        critical_s=per_device(critical & ~communicates),
        communication_s=float(takes_s[critical & communicates].sum()),
        busy_s=per_device(computes),
        links=_links(timeline, takes_s),
        memory_bytes=costs.memory_bytes[:num_devices],
        limit_bytes=costs.limit_bytes[:num_devices],
    )


def _largest_row(costs: PlanCosts) -> LargestRow:
    """The first of several equal ones, in the order of the families."""
    rows = {family: values for family, values in bound_rows(costs).items() if len(values)}
    family = max(rows, key=lambda name: float(rows[name].max()))
    index = int(np.argmax(rows[family]))
    return LargestRow(family=family, index=index, seconds=float(rows[family][index]))


def _links(timeline: Timeline, takes_s: Floats) -> tuple[LinkUse, ...]:
    busy_s: dict[str, float] = {}
    for task in np.flatnonzero(takes_s > 0).tolist():
        for name in _names(timeline, task):
            busy_s[name] = busy_s.get(name, 0.0) + float(takes_s[task])
    uses = (LinkUse(name=name, busy_s=seconds) for name, seconds in busy_s.items())
    return tuple(sorted(uses, key=lambda use: (-use.busy_s, use.name)))


def _names(timeline: Timeline, task: int) -> tuple[str, ...]:
    """The links that a task occupies; a message on no named link gets a name from its stages."""
    kind = TaskKind(int(timeline.kind[task]))
    if timeline.links[task] or kind not in SENDS:
        return tuple(dict.fromkeys(timeline.links[task]))
    sender = int(timeline.stage[task])
    return (f"stage {sender} to stage {sender + SENDS[kind]}",)
