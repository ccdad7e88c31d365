"""What a time limit leaves for each part of a command: the limit holds from its start to its last output."""

import math
from dataclasses import dataclass

import click

from stagecut.planner.cli.options.outputs import Pictures
from stagecut.planner.cli.process.lazy_group import seconds_since_start
from stagecut.planner.core.plan import Plan

EVEN_SHARE, EVEN_TIME_LIMIT_S = 0.1, 10.0
"""Of the time limit, kept for the even split; and in seconds the most that it takes."""
LEAST_SEARCH_S = 0.25
"""A search has so long even where reading the files took the whole limit."""


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """The parts of the time limit of a command that searches, and tells what it found."""

    context: click.Context
    limit_s: float | None
    """None: no limit."""
    pictures: Pictures
    """What is to be drawn of the plan."""
    compares: bool
    """Whether the plan is compared with an even split."""

    @property
    def spent_s(self) -> float:
        """Of the limit, before the search begins."""
        spent_s = seconds_since_start(self.context)
        return spent_s if self.limit_s is None else min(spent_s, max(0.0, self.limit_s - LEAST_SEARCH_S))

    def answer_s(self, plan: Plan) -> float:
        """To be kept for all that comes after the search."""
        even_s = min(EVEN_SHARE * self._limit_s, EVEN_TIME_LIMIT_S) if self.compares else 0.0
        return even_s + self.pictures.seconds(plan)

    def even_split_s(self, plan: Plan) -> float:
        """That the even split may take; not positive if there is no time left."""
        left_s = self._limit_s - seconds_since_start(self.context) - self.pictures.seconds(plan)
        return min(left_s, EVEN_TIME_LIMIT_S)

    @property
    def _limit_s(self) -> float:
        return math.inf if self.limit_s is None else self.limit_s
