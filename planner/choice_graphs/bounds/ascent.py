"""Multipliers that make the bound large: a bundle as long as it rises, then averaged slopes, in turns."""

from collections.abc import Callable
from itertools import cycle

from stagecut.planner.choice_graphs.bounds.bundle import Bundle
from stagecut.planner.choice_graphs.bounds.dual import Point
from stagecut.planner.choice_graphs.bounds.record import Record
from stagecut.planner.choice_graphs.bounds.volume import Volume

FEWEST_SWEEPS, MOST_SWEEPS, AT_FIRST = 5, 60, 3
"""Sweeps per point; so many times as many at the first, where all messages are 0."""
_PAIRS_PER_POINT = 4_000_000
"""Sweeps over so many pairs of states take some hundredths of a second."""
_WORTH = 1e-6
"""Share of the way to the record's aim that a turn of both methods must bring, or the ascent ends."""


def ascend(record: Record, *, goes_on: Callable[[Point, bool], bool]) -> None:
    """Step until told to stop, or nothing rises any more; the callback hears each point and whether it is the best."""
    core = record.dual.relaxation.core
    usual = min(max(_PAIRS_PER_POINT // (len(core.pair_cost) + 1), FEWEST_SWEEPS), MOST_SWEEPS)
    sweeps = AT_FIRST * usual
    before = record.value
    methods: tuple[type[Bundle | Volume], ...] = (Bundle, Volume)
    for method in cycle(methods):
        steps = method(record)
        multipliers = record.multipliers
        while not steps.is_exhausted:
            point = record.dual.ask(multipliers, sweeps=sweeps)
            is_best = record.tell(multipliers, point)
            if not goes_on(point, is_best) or len(multipliers) == 0:
                return
            steps.tell(multipliers, point, is_best=is_best)
            multipliers, sweeps = steps.next(), usual
        if method is Volume and record.value - before <= _WORTH * (record.aim - record.value):
            return
        before = record.value if method is Volume else before
