"""How many times as long as planned everything must take for this machine to keep up with a dilated run."""

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

import torch

from stagecut.executor.dilated.dilation import Dilation
from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.batch import Batch
from stagecut.executor.play.trace import Span
from stagecut.executor.play.transport import Transport
from stagecut.planner.simulator.action_lists import Op

PLAYS = 3
"""Iterations at full speed; the first one, in which threads and buffers are made, does not count."""
OVERHEAD_MARGIN = 6.0
"""An iteration is to take this many times what it takes at full speed, so that ranks seldom wait for a processor."""
PATH_ACTION_S = 0.025
"""And so long for each action on the way through it: the runtime adds about 0.4 ms to one, which is then 1.6 %."""
WORK_MARGIN = 1.5
"""Planned times are to be this many times what the work in them takes while all ranks are at work."""
ACTION_OVERHEAD_S = 2.5e-4
"""What the runtime takes for an action of one rank, at most; for layers whose work hides it."""
NEAT = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_OPS = frozenset(map(str, Op))


def find_time_scale(pipeline: Pipeline, batch: Batch, *, iteration_s: float) -> float:
    """The least neat factor with which this machine keeps up; all ranks call it together, and get the same.

    One iteration is played at full speed, without an optimizer step, a few times over. With T its time, w / p
    the largest ratio of what an action takes and what is planned for it, and n the actions on the way through it,
    those of the rank with the most of them and two for each other stage:

        time scale >= max(OVERHEAD_MARGIN * T / iteration, PATH_ACTION_S * n / iteration, WORK_MARGIN * w / p)

    where T is at most ACTION_OVERHEAD_S for each action of each rank: longer ones do real work, which
    is hidden in the planned times.

    Parameters
    ----------
    iteration_s
        Simulated.
    """
    pace = pipeline.pace
    assert isinstance(pace, Dilation)
    pace.time_scale = 0.0
    plays = [_played(pipeline, batch) for _ in range(PLAYS)][1:]
    figures = [len(pipeline.turns), max(_work_ratio(pace, spans) for spans in plays)]
    figures += [mark for spans in plays for mark in (spans[0].ready_s, spans[-1].end_s)]
    of_all = _brought_together(figures, pipeline.transport, pipeline.role.rank, pipeline.layout.world_size)
    seconds = [float(of_all[:, i + 1].max() - of_all[:, i].min()) for i in range(2, len(figures), 2)]
    overhead_s = min(*seconds, ACTION_OVERHEAD_S * float(of_all[:, 0].sum()))
    on_the_way = float(of_all[:, 0].max()) + 2 * (pipeline.layout.num_stages - 1)
    wanted_s = max(OVERHEAD_MARGIN * overhead_s, PATH_ACTION_S * on_the_way)
    return neat(max(wanted_s / iteration_s, WORK_MARGIN * float(of_all[:, 1].max())))


def neat(factor: float) -> float:
    """The least of `NEAT`, times a power of ten, that is not below a positive factor."""
    power = 10.0 ** math.floor(math.log10(factor))
    return float(f"{next(step for step in NEAT if step * power >= factor * (1 - 1e-9)) * power:.1e}")


def _played(pipeline: Pipeline, batch: Batch) -> Sequence[Span]:
    pipeline.transport.barrier()
    return pipeline.accumulate(batch)


def _work_ratio(pace: Dilation, spans: Sequence[Span]) -> float:
    """Largest ratio of measured and planned seconds over the kinds of actions, each by its median."""
    ratios: dict[tuple[str, int], list[float]] = defaultdict(list)
    for span in spans:
        planned_s = pace.planned_s(span.kind, span.stage, span.hi - span.lo) if span.kind in _OPS else 0.0
        if planned_s > 0:
            ratios[span.kind, span.stage].append((span.end_s - span.start_s) / planned_s)
    return max((median(own) for own in ratios.values()), default=0.0)


def _brought_together(figures: Sequence[float], transport: Transport, rank: int, world_size: int) -> torch.Tensor:
    """One row for each rank, the same on all of them."""
    rows = torch.zeros(world_size, len(figures), dtype=torch.float64)
    rows[rank] = torch.tensor(figures, dtype=torch.float64)
    transport.sum(rows, tuple(range(world_size)))
    return rows
