"""The root cause of a failed run, from what all its ranks left behind."""

import signal
from collections.abc import Mapping, Sequence

from stagecut.executor.ranks.failures import CheckError, FailureKind, FailureReport, RunError
from stagecut.planner.core.messages.errors import BadInputError, StagecutError

_ORDER = tuple(FailureKind)
_REMEDIES = {
    FailureKind.MEMORY: "; plan with a smaller --micro-batch, with --recompute always, or with this device's memory",
    FailureKind.HUNG: "; if it was only slow, raise --timeout",
}
_SENT_BY_LAUNCHER = frozenset({-signal.SIGTERM, -signal.SIGINT})


def root_cause(
    reports: Sequence[FailureReport],
    exit_codes: Mapping[int, int],
    *,
    names: Sequence[str] = (),
    timeout_s: float = 0.0,
) -> StagecutError:
    """The error that ended a run; its message names the rank at fault.

    A rank's own failures take precedence over what other ranks noticed; ties go to the earliest.

    Parameters
    ----------
    reports
        Those of the last attempt.
    exit_codes
        Exit codes of the ranks that failed; negative for signals.
    names
        What to call each rank in messages; `rank 3` by default.
    timeout_s
        How long ranks waited for each other.
    """
    own = [report for report in reports if report.kind.is_own]
    if own:
        return _own_failure(min(own, key=lambda report: (_ORDER.index(report.kind), report.at_s)), names)
    hung = [report for report in reports if report.kind is FailureKind.HUNG and report.to_blame]
    blamed = {rank for report in hung for rank in report.to_blame}
    killed = [
        rank
        for rank, code in sorted(exit_codes.items())
        if code < 0 and code not in _SENT_BY_LAUNCHER and rank not in blamed
    ]
    if killed:
        return RunError("\n".join(_death(rank, exit_codes[rank], names) for rank in killed))
    if hung:
        first = min(hung, key=lambda report: report.at_s)
        waited = f"{_name(first.rank, names)} waited {timeout_s:g} s for an answer ({first.message})"
        return RunError(f"{_listed(first.to_blame, names)} hung: {waited}{_REMEDIES[FailureKind.HUNG]}")
    return RunError(_unexplained(reports, exit_codes, names))


def failure_message(report: FailureReport, names: Sequence[str] = ()) -> str:
    """What a rank reports, and which ranks it was waiting for."""
    if report.kind is FailureKind.LOSS:  # already names the rank where it originated
        return report.message
    waited = "" if report.kind.is_own or not report.to_blame else f"; it waited for {_listed(report.to_blame, names)}"
    return f"{_name(report.rank, names)}: {report.message}{waited}"


def _own_failure(report: FailureReport, names: Sequence[str]) -> StagecutError:
    if report.kind is FailureKind.INPUT:
        return BadInputError(*report.message.splitlines())
    if report.kind is FailureKind.CHECK:
        return CheckError(report.message)
    if report.kind is FailureKind.LOSS:
        return RunError(report.message)
    kind = f"{report.kind}: " if report.kind is FailureKind.MEMORY else ""
    return RunError(f"{_name(report.rank, names)}: {kind}{report.message}{_REMEDIES.get(report.kind, '')}")


def _death(rank: int, exit_code: int, names: Sequence[str]) -> str:
    name = signal.Signals(-exit_code).name
    hint = "; the system does that when memory runs out" if name == "SIGKILL" else ""
    return f"{_name(rank, names)} was killed by {name}{hint}"


def _unexplained(reports: Sequence[FailureReport], exit_codes: Mapping[int, int], names: Sequence[str]) -> str:
    """Ranks that ended without a report, or that only lost connections to ranks on other hosts."""
    reported = {report.rank for report in reports}
    silent = [rank for rank, code in sorted(exit_codes.items()) if rank not in reported and code > 0]
    if silent:
        return "\n".join(
            f"{_name(rank, names)} exited with code {exit_codes[rank]} without saying why" for rank in silent
        )
    if reports:
        return failure_message(reports[0], names)
    return "\n".join(
        f"{_name(rank, names)} was terminated by {signal.Signals(-code).name}"
        for rank, code in sorted(exit_codes.items())
    )


def _listed(ranks: Sequence[int], names: Sequence[str]) -> str:
    return " and ".join(_name(rank, names) for rank in ranks)


def _name(rank: int, names: Sequence[str]) -> str:
    return names[rank] if rank < len(names) else f"rank {rank}"
