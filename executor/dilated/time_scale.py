"""How far planned times must be stretched for this machine to keep up with a dilated run."""

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from stagecut.executor.dilated.dilation import Dilation
from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.batch import Batch
from stagecut.executor.play.trace import Span
from stagecut.planner.simulator.action_lists import Op

PLAYS = 3
"""Iterations at full speed; the first, which creates threads and buffers, does not count."""
OVERHEAD_MARGIN = 6.0
"""An iteration should take this many times as long as at full speed, so that ranks rarely wait for a core."""
PATH_ACTION_S = 0.025
"""And this long per action on its critical path: the runtime adds about 0.4 ms to each, which is then 1.6 %."""
WORK_MARGIN = 1.5
"""Planned times should be this many times as long as the work in them takes while all ranks are busy."""
ACTION_OVERHEAD_S = 2.5e-4
"""Upper bound on the runtime's overhead per action of one rank, for layers whose own work would hide it."""
ROUND_FACTORS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_OPS = frozenset(map(str, Op))


def find_time_scale(pipeline: Pipeline, batch: Batch, *, iteration_s: float) -> float:
    """The smallest round factor with which this machine keeps up; a collective, with the same result on all ranks.

    One iteration is played a few times at full speed, without an optimizer step. With T its time, w / p the largest
    ratio of actual to planned time of an action, and n the number of actions on the critical path, which are those of
    the rank with the most, plus two for each other stage:

        time scale >= max(OVERHEAD_MARGIN * T / iteration, PATH_ACTION_S * n / iteration, WORK_MARGIN * w / p)

    where T is capped at ACTION_OVERHEAD_S per action of each rank: anything beyond is real work, which the planned
    times will hide.

    Parameters
    ----------
    iteration_s
        Simulated, in seconds.
    """
    pace = pipeline.pace
    assert isinstance(pace, Dilation)
    pace.time_scale = 0.0
    plays = [_played(pipeline, batch) for _ in range(PLAYS)][1:]
    figures = [len(pipeline.turns), max(_work_ratio(pace, spans) for spans in plays)]
    figures += [mark for spans in plays for mark in (spans[0].ready_s, spans[-1].end_s)]
    of_all = pipeline.context.all_gather(figures, exact=False)
    seconds = [float(of_all[:, i + 1].max() - of_all[:, i].min()) for i in range(2, len(figures), 2)]
    overhead_s = min(*seconds, ACTION_OVERHEAD_S * float(of_all[:, 0].sum()))
    path_actions = float(of_all[:, 0].max()) + 2 * (pipeline.layout.num_stages - 1)
    wanted_s = max(OVERHEAD_MARGIN * overhead_s, PATH_ACTION_S * path_actions)
    return round_up(max(wanted_s / iteration_s, WORK_MARGIN * float(of_all[:, 1].max())))


def round_up(factor: float) -> float:
    """The smallest of `ROUND_FACTORS`, times a power of ten, that is not below a positive factor."""
    power = 10.0 ** math.floor(math.log10(factor))
    return float(f"{next(step for step in ROUND_FACTORS if step * power >= factor * (1 - 1e-9)) * power:.1e}")


def _played(pipeline: Pipeline, batch: Batch) -> Sequence[Span]:
    pipeline.transport.barrier()
    return pipeline.accumulate(batch)


def _work_ratio(pace: Dilation, spans: Sequence[Span]) -> float:
    """Largest ratio of measured to planned seconds over all kinds of actions, taking the median of each."""
    ratios: dict[tuple[str, int], list[float]] = defaultdict(list)
    for span in spans:
        planned_s = pace.planned_s(span.kind, span.stage, span.hi - span.lo) if span.kind in _OPS else 0.0
        if planned_s > 0:
            ratios[span.kind, span.stage].append((span.end_s - span.start_s) / planned_s)
    return max((median(own) for own in ratios.values()), default=0.0)
