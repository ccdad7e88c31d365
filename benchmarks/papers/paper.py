"""What a paper states, and what is run for comparison."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.harness.measuring import Answer, Answers
from benchmarks.problems.specs import Spec
from benchmarks.report.pages import markdown, ratio, times
from stagecut.planner.core.units import format_seconds

Found = Mapping[str, Answers]
"""Answers by name of the spec, then by solver."""
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """A figure stated in the paper, in our words."""

    claim: str
    read_in: str
    """Its source: the abstract, slides or published code."""
    ours: Callable[[Found], str]
    """The same figure from our runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """One paper with its problems."""

    key: str
    """Name of its marker, and prefix of the names of its parts."""
    source: str
    """Authors, venue, year."""
    specs: tuple[Spec, ...]
    rows: Callable[[Found], Found] = dict
    """Merges answers to several specs into one row."""
    headlines: tuple[Headline, ...] = ()
    """None if the paper was not available to us."""
    tables: tuple[Callable[[Found], str], ...]
    comparable: str
    """What may and what may not be compared with the paper."""

    def text(self, found: Found) -> str:
        """Text of the page: headlines beside our figures, the tables, and how to read them."""
        head = ("the paper", "read in", "here")
        found = shortened(self.rows(found))
        rows = [[own.claim, own.read_in, own.ours(found)] for own in self.headlines]
        stated = (
            [markdown(head, rows, numbers=False)]
            if rows
            else ["No figure of this paper is quoted: we could not read one."]
        )
        return "\n\n".join([f"{self.source}.", *stated, *(table(found) for table in self.tables), self.comparable])


def shortened(found: Mapping[str, V]) -> dict[str, V]:
    """The model and the cluster, if that distinguishes the specs."""
    short = {name: name.split(", batch ")[0] for name in found}
    return {short[name] if len(set(short.values())) == len(short) else name: own for name, own in found.items()}


def times_table(found: Found, *, solvers: tuple[str, ...], over: str) -> str:
    """Simulated time of each solver's plan, and its ratio to that of one of them."""
    rows = []
    for name, answers in found.items():
        base_s = answers[over].objective_s if over in answers else None
        rows.append([name, *(_time_cell(answers.get(solver), base_s) for solver in solvers)])
    return markdown(("instance", *(f"`{solver}`" for solver in solvers)), rows)


def own_objectives_table(found: Found, *, solver: str) -> str:
    """The planner's own objective beside the simulated time of its plan."""
    rows = []
    for name, answers in found.items():
        own = answers[solver].own_objective if solver in answers else None
        if own is not None:
            rows.append([name, own["name"], f"{own['value']:.4g}", _time(answers[solver].objective_s)])
    return markdown(("instance", "its own objective", "value", "simulated"), rows)


def range_of(found: Found, slow: str, fast: str) -> str:
    """How many times faster one solver's plans are than another's: the smallest and the largest ratio."""
    ratios = [
        factor
        for answers in found.values()
        if slow in answers and fast in answers
        if (factor := ratio(answers[slow].objective_s, answers[fast].objective_s)) is not None
    ]
    return f"{times(min(ratios))} to {times(max(ratios))}" if ratios else "-"


def _time_cell(answer: Answer | None, base_s: float | None) -> str:
    if answer is None or answer.objective_s is None:
        return "-"
    factor = ratio(answer.objective_s, base_s)
    return _time(answer.objective_s) + ("" if factor is None else f" ({factor:.3f})")


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else format_seconds(seconds)
