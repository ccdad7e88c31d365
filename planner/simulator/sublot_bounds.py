"""Lower bounds of plans whose processes have sublot sizes of their own."""

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.sublot_sizes import sublot_cuts
from stagecut.planner.cost.plan_costs import PlanCosts, Sublots, TaskKind
from stagecut.planner.sublots.staircases import staircases_behind


def sublot_rows(costs: PlanCosts, sublots: Sublots) -> dict[str, Floats]:
    """Rows by family: `busy`, and `flush` where every stage forwards all samples before its first backward.

    Under a flush no backward of the last stage starts before its last forward ends, so the iteration takes at
    least the makespan of the forwards plus that of the backwards, all-reduces and optimizer steps included; and
    exactly that where no link is shared.
    """
    tail_s = costs.sync_s + costs.update_s
    cut, stages = sublots.cut, range(costs.num_stages)
    busy_s = [
        sum(seconds * _count(sublots, *key) for key, seconds in sublots.seconds.items() if _computes(key, stage))
        for stage in stages
    ]
    rows = {"busy": np.array(busy_s) + tail_s}
    if min(cut.in_flight) == cut.num_samples:
        forwards_s = _ends(sublots, TaskKind.FORWARD, list(stages))[-1]
        backwards_s = _ends(sublots, TaskKind.BACKWARD, list(reversed(stages)))[::-1]
        rows["flush"] = forwards_s + np.array(backwards_s) + tail_s
    return rows


def _computes(key: tuple[TaskKind, int, int], stage: int) -> bool:
    return key[0] in (TaskKind.FORWARD, TaskKind.BACKWARD) and key[1] == stage


def _count(sublots: Sublots, kind: TaskKind, stage: int, length: int) -> int:
    sizes = sublots.cut.forward if kind is TaskKind.FORWARD else sublots.cut.backward
    return int(np.count_nonzero(np.diff(sublot_cuts(sublots.cut.num_samples, sizes[stage])) == length))


def _ends(sublots: Sublots, kind: TaskKind, stages: list[int]) -> list[float]:
    """End of the last sublot on each stage, in seconds; the stages are in the order in which samples pass them."""
    cut, ends_s = sublots.cut, list[float]()
    sizes = cut.forward if kind is TaskKind.FORWARD else cut.backward
    messages = cut.forward_messages if kind is TaskKind.FORWARD else cut.backward_messages
    staircase = np.zeros(cut.num_samples)
    for place, stage in enumerate(stages):
        own = sublot_cuts(cut.num_samples, sizes[stage])
        staircase = _behind(sublots, kind, stage, own, staircase)
        ends_s.append(float(staircase[-1]))
        if place + 1 < len(stages):
            size = messages[min(stage, stages[place + 1])]
            theirs = sublot_cuts(cut.num_samples, sizes[stages[place + 1]])
            cuts = np.union1d(own, theirs) if size is None else sublot_cuts(cut.num_samples, size)
            staircase = _behind(sublots, TaskKind(kind + 2), stage, cuts, staircase)
    return ends_s


def _behind(sublots: Sublots, kind: TaskKind, stage: int, cuts: Ints, staircase: Floats) -> Floats:
    seconds = np.array([sublots.seconds[kind, stage, length] for length in np.diff(cuts).tolist()])
    return staircases_behind(seconds, cuts, staircase)
