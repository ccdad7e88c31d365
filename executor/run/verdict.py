"""Why a run ended: one cause out of what all its ranks left behind."""

import signal
from collections.abc import Mapping, Sequence

from stagecut.executor.run.faults import OWN, CheckError, ErrorReport, FaultKind, RunError
from stagecut.planner.core.errors import BadInputError, StagecutError

_ORDER = tuple(FaultKind)
_REMEDIES = {
    FaultKind.MEMORY: "plan with a smaller --micro-batch, with --recompute always, or with the memory this device has",
    FaultKind.HUNG: "a longer --timeout helps where it was only slow",
}
_OF_THE_LAUNCHER = frozenset({-signal.SIGTERM, -signal.SIGINT})
"""Exit codes of ranks that were told to end."""


def verdict(
    reports: Sequence[ErrorReport], exit_codes: Mapping[int, int], *, names: Sequence[str] = (), timeout_s: float = 0.0
) -> StagecutError:
    """The error that ended a run, its message naming the rank at fault.

    Faults of a rank's own come before what others noticed of them; among equals, the first in time.

    Parameters
    ----------
    reports
        Of the last attempt.
    exit_codes
        Of the ranks that failed, negative for signals.
    names
        What to call each rank, by rank; `rank 3` by default.
    timeout_s
        How long ranks waited for each other.
    """
    own = [report for report in reports if report.kind in OWN]
    if own:
        return _own_fault(min(own, key=lambda report: (_ORDER.index(report.kind), report.at_s)), names)
    hung = [report for report in reports if report.kind is FaultKind.HUNG and report.to_blame]
    killed = _killed(exit_codes, but={rank for report in hung for rank in report.to_blame})
    if killed:
        return RunError("\n".join(_death(rank, exit_codes[rank], names) for rank in killed))
    if hung:
        return RunError(_silence(min(hung, key=lambda report: report.at_s), names, timeout_s))
    return RunError(_unexplained(reports, exit_codes, names))


def told(report: ErrorReport, names: Sequence[str] = ()) -> str:
    """What a rank says of its end, and for whom it waited then."""
    if report.kind is FaultKind.LOSS:  # names the rank it came from, whoever reports it
        return report.message
    awaited = report.to_blame if report.kind in {FaultKind.HUNG, FaultKind.LOST} else ()
    waited = f"; it waited for {_listed(awaited, names)}" if awaited else ""
    return f"{_name(report.rank, names)}: {report.message}{waited}"


def _own_fault(report: ErrorReport, names: Sequence[str]) -> StagecutError:
    if report.kind is FaultKind.INPUT:
        return BadInputError(*report.message.splitlines())
    if report.kind is FaultKind.CHECK:
        return CheckError(report.message)
    if report.kind is FaultKind.LOSS:
        return RunError(report.message)
    word = f"{report.kind}: " if report.kind is FaultKind.MEMORY else ""
    return RunError(f"{_name(report.rank, names)}: {word}{report.message}{_remedy(report.kind)}")


def _killed(exit_codes: Mapping[int, int], *, but: set[int]) -> list[int]:
    """Ranks that died of a signal that neither the launcher nor another rank sent."""
    return [
        rank
        for rank, code in sorted(exit_codes.items())
        if code < 0 and code not in _OF_THE_LAUNCHER and rank not in but
    ]


def _death(rank: int, exit_code: int, names: Sequence[str]) -> str:
    name = signal.Signals(-exit_code).name
    hint = "; the system does that when memory runs out" if name == "SIGKILL" else ""
    return f"{_name(rank, names)} was killed by {name}{hint}"


def _silence(report: ErrorReport, names: Sequence[str], timeout_s: float) -> str:
    culprits = _listed(report.to_blame, names)
    waited = f"{_name(report.rank, names)} waited {timeout_s:g} s for an answer"
    return f"{culprits} hung: {waited} ({report.message}){_remedy(report.kind)}"


def _unexplained(reports: Sequence[ErrorReport], exit_codes: Mapping[int, int], names: Sequence[str]) -> str:
    """Ranks that ended without a report; or only lost connections, to ranks of other hosts."""
    reported = {report.rank for report in reports}
    silent = [rank for rank, code in sorted(exit_codes.items()) if rank not in reported and code > 0]
    if silent:
        return "\n".join(
            f"{_name(rank, names)} ended with exit code {exit_codes[rank]} before it could say why" for rank in silent
        )
    if reports:
        return told(reports[0], names)
    return "\n".join(
        f"{_name(rank, names)} was ended by {signal.Signals(-code).name}" for rank, code in sorted(exit_codes.items())
    )


def _listed(ranks: Sequence[int], names: Sequence[str]) -> str:
    return " and ".join(_name(rank, names) for rank in ranks)


def _name(rank: int, names: Sequence[str]) -> str:
    return names[rank] if rank < len(names) else f"rank {rank}"


def _remedy(kind: FaultKind) -> str:
    return f"; {_REMEDIES[kind]}" if kind in _REMEDIES else ""
