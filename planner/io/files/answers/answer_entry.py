"""The schemas of what other commands print with --json, as far as a report shows it."""

from typing import Annotated

from pydantic import ConfigDict, Field

from stagecut.planner.core.result import Status, StopCause
from stagecut.planner.io.documents.fields import Entry, Name, NonNegative, Text


class AnswerEntry(Entry):
    """A mapping of an answer, to which later versions may add keys."""

    model_config = ConfigDict(extra="ignore")


class PointEntry(AnswerEntry):
    """One improvement of a search."""

    seconds: NonNegative
    objective_s: NonNegative | None
    bound_s: NonNegative | None


class ResultEntry(AnswerEntry):
    """What one solver found."""

    solver: Name
    status: Annotated[Status, Field(strict=False)]
    stopped_by: Annotated[StopCause, Field(strict=False)] | None
    seconds: NonNegative
    objective_s: NonNegative | None
    bound_s: NonNegative | None


class ProvenanceEntry(AnswerEntry):
    """Which inputs an answer is about."""

    input_hashes: dict[str, str]


class AnswerAboutInputs(AnswerEntry):
    """What a command prints about a problem."""

    provenance: ProvenanceEntry


class SolveAnswerEntry(AnswerAboutInputs, ResultEntry):
    """What `plan solve --json` prints."""

    history: list[PointEntry]


class UnsupportedEntry(AnswerEntry):
    """A solver that cannot express the problem."""

    solver: Name
    status: Text


class CompareAnswerEntry(AnswerAboutInputs):
    """What `plan compare --json` prints."""

    results: list[ResultEntry | UnsupportedEntry]


class WhatIfEntry(ResultEntry):
    """What one more unit brings."""

    what: Text
    unit: Text


class ExplainAnswerEntry(AnswerAboutInputs):
    """What `plan explain --json` prints."""

    iteration_s: NonNegative
    what_if: list[WhatIfEntry]
