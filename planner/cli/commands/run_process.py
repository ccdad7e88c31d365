"""One run of a plan: in this process, or as this command started again for each rank."""

import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import click

from stagecut.planner.cli.options.run import RunChoices, RunOutputs
from stagecut.planner.cli.parameters.groups import is_verbose
from stagecut.planner.cli.process.cancellable import held, held_silently, unwound
from stagecut.planner.cli.process.streams import ClosedPipeError
from stagecut.planner.cli.process.writing import announce, compact_json, print_json
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.messages.visible import visible
from stagecut.planner.core.run_record import CheckRecord
from stagecut.planner.io.documents.canonical import Tree, format_json
from stagecut.planner.report.run_tables import check_label

if TYPE_CHECKING:
    from stagecut.executor.run.options import RunOptions
    from stagecut.executor.run.preflight import Preflight


LINE_EVERY_S = 1.0
"""Shortest interval between two lines about progress."""


class Progress:
    """Which steps get a line on stderr: the first, the last, and others no faster than one can read."""

    def __init__(self, num_steps: int, *, quiet: bool) -> None:
        """The number of steps includes the warm-up; waves count as steps."""
        self.num_steps, self.quiet, self._last_s = num_steps, quiet, -math.inf

    def is_due(self, step: int) -> bool:
        """Whether a step, counted from 0, gets one."""
        now_s = time.monotonic()
        if self.quiet or (step < self.num_steps - 1 and now_s - self._last_s < LINE_EVERY_S):
            return False
        self._last_s = now_s
        return True


class Recorded(Protocol):
    """What a run leaves."""

    @property
    def check(self) -> CheckRecord | None:
        """The comparison with a single process."""
        ...


O = TypeVar("O", bound=Recorded)  # noqa: E741
P = TypeVar("P")


class RunProcess(ABC, Generic[P, O]):
    """A run from the checks before it to the answer; what depends on the kind of plan is left to subclasses."""

    def __init__(self, plan_file: P, choices: RunChoices, outputs: RunOutputs, *, quiet: bool, as_json: bool) -> None:
        self._plan_file, self._choices, self._outputs = plan_file, choices, outputs
        self._quiet, self._as_json = quiet, as_json

    @abstractmethod
    def _preflight(self, options: "RunOptions") -> "Preflight":
        """Refuse what cannot run."""

    @abstractmethod
    def _train_rank(self, options: "RunOptions", finish: Callable[[O], None]) -> None:
        """Be one rank; the one that answers calls `finish`."""

    @abstractmethod
    def _train_together(self, options: "RunOptions") -> O:
        """Be all ranks, as threads."""

    @abstractmethod
    def _tree(self, outcome: O) -> Tree:
        """The record as a file holds it."""

    @abstractmethod
    def _trace(self, outcome: O) -> dict[str, object]:
        """Predicted and measured lanes."""

    @abstractmethod
    def _append(self, outcome: O) -> None:
        """Add the record to the history."""

    @abstractmethod
    def _print(self, outcome: O) -> None:
        """Print the answer for people."""

    def _warnings(self, _outcome: O) -> Iterable[str]:
        """What stderr says of a run that went on in spite of something."""
        return ()

    def start(self, arguments: Sequence[str]) -> None:
        """Print notes, and run as threads of this process, or start this command again as a process for each rank."""
        preflight = self._preflight(self._choices.options())
        for note in () if self._quiet else preflight.notes:
            click.echo(visible(note), err=True)
        if preflight.together:
            with unwound():
                outcome = self._train_together(self._choices.options())
            self._answer(outcome)
        else:
            self._launch(arguments, preflight)

    def be_rank(self) -> None:
        """Be one rank of several; one of them prints the answer."""
        from stagecut.executor.ranks.reporting import previous_failure

        if os.environ["RANK"] == "0" and (fault := previous_failure()) is not None:
            click.echo(f"restarted after a fault: {visible(fault)}", err=True)

        def finish(outcome: O) -> None:
            with held_silently():  # signals kill a rank, but not while it answers; its launcher reports them
                self._answer(outcome)

        self._train_rank(self._choices.options(), finish)

    def _launch(self, arguments: Sequence[str], preflight: "Preflight") -> None:
        from stagecut.executor.ranks.launch import launch

        try:
            with unwound():
                launch(
                    ["-m", "stagecut", "run", *arguments],
                    num_ranks=preflight.layout.world_size,
                    names=preflight.layout.names,
                    max_restarts=self._choices.max_restarts,
                    timeout_s=self._choices.timeout_s,
                    verbose=is_verbose(),
                    crews=preflight.crews,
                )
        except BadInputError as fault:
            if not fault.complaints:  # the rank that wrote the answer had nothing to say either
                raise ClosedPipeError from None
            raise

    def _answer(self, outcome: O) -> None:
        """Write the files, print the answer, and refuse a check that failed."""
        from stagecut.executor.ranks.failures import CheckError

        try:
            self._write(outcome)
        finally:
            if self._as_json:
                print_json(self._tree(outcome))
            else:
                self._print(outcome)
        if not self._quiet:
            announce(self._outputs.paths)
            for warning in self._warnings(outcome):
                click.echo(f"Warning: {visible(warning)}", err=True)
        if outcome.check is not None and not outcome.check.passed:
            raise CheckError(f"--check {check_label(outcome.check)}")

    def _write(self, outcome: O) -> None:
        outputs = self._outputs
        if outputs.output is not None:
            outputs.write(outputs.output, format_json(self._tree(outcome)))
        if outputs.trace is not None:
            outputs.write(outputs.trace, compact_json(self._trace(outcome)))
        with held():
            self._append(outcome)
