"""The schemas of what other commands print with --json about virtual workers, as far as a report shows it."""

from typing import Annotated

from pydantic import Field

from stagecut.planner.core.result import Status, StopCause
from stagecut.planner.io.documents.fields import Name, NonNegative, Text
from stagecut.planner.io.files.answers.answer_entry import AnswerAboutInputs, AnswerEntry, UnsupportedEntry
from stagecut.planner.io.files.wave_plan_entry import Rate


class WavePointEntry(AnswerEntry):
    """One improvement of a search."""

    seconds: NonNegative
    samples_per_s: Rate | None
    bound_samples_per_s: Rate | None


class WaveResultEntry(AnswerEntry):
    """What one search found."""

    solver: Name
    status: Annotated[Status, Field(strict=False)]
    stopped_by: Annotated[StopCause, Field(strict=False)] | None
    seconds: NonNegative
    samples_per_s: Rate | None
    bound_samples_per_s: Rate | None


class WaveSolveAnswerEntry(AnswerAboutInputs, WaveResultEntry):
    """What `plan solve --json` prints."""

    history: list[WavePointEntry]


class WaveCompareAnswerEntry(AnswerAboutInputs):
    """What `plan compare --json` prints."""

    results: list[WaveResultEntry | UnsupportedEntry]


class WaveWhatIfEntry(WaveResultEntry):
    """What one more unit brings."""

    what: Text
    unit: Text


class ImpossibleEntry(AnswerEntry):
    """A unit that the job's allocation does not go with."""

    what: Text
    unit: Text


class WaveExplainAnswerEntry(AnswerAboutInputs):
    """What `plan explain --json` prints."""

    samples_per_s: Rate
    what_if: list[WaveWhatIfEntry | ImpossibleEntry]
