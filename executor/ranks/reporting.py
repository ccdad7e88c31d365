"""Failure reports: left for the launcher, or agreed on among the ranks where there is no launcher."""

import hashlib
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

from stagecut.executor.ranks.environment import attempt_number, launcher_folder
from stagecut.executor.ranks.failures import FailureKind, FailureReport
from stagecut.executor.ranks.root_cause import failure_message

if TYPE_CHECKING:
    import torch.distributed as dist

_OWN, _NOTICED = "reported/own", "reported/noticed"


def write_report(folder: Path, report: FailureReport, *, attempt: int = 0) -> None:
    """Leave a report for the launcher, atomically."""
    path = folder / f"attempt{attempt}-rank{report.rank}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(report)))
    partial.replace(path)


def read_reports(folder: Path, *, attempt: int) -> tuple[FailureReport, ...]:
    """The reports of one attempt, in order of time."""
    paths = sorted(folder.glob(f"attempt{attempt}-rank*.json"))
    return tuple(sorted((_report(path) for path in paths), key=lambda report: report.at_s))


def previous_failure() -> str | None:
    """What ended the previous attempt, as far as its ranks could tell; None in the first attempt."""
    attempt, folder = attempt_number(), launcher_folder()
    if attempt == 0:
        return None
    reports = read_reports(folder, attempt=attempt - 1) if folder else ()
    own = [report for report in reports if report.kind.is_own] or reports
    return failure_message(own[0]) if own else "a rank died"


def is_first_to_report(report: FailureReport, store: "dist.Store | None") -> bool:  # type: ignore[name-defined]
    """Whether no other rank has reported the same failure.

    What ranks only notice about each other is reported only if no rank has reported a failure of its own.

    Parameters
    ----------
    store
        Shared by all ranks. Without one, or if it is gone with the rank that served it, every rank reports.
    """
    if store is None:
        return True
    try:
        if not report.kind.is_own:
            return not store.check([_OWN]) and int(store.add(_NOTICED, 1)) == 1
        store.set(_OWN, "")
        digest = hashlib.sha256(f"{report.kind}: {report.message}".encode()).hexdigest()
        return int(store.add(f"{_OWN}/{digest}", 1)) == 1
    except RuntimeError:
        return True


def _report(path: Path) -> FailureReport:
    tree = json.loads(path.read_text())
    values = {field.name: tree[field.name] for field in fields(FailureReport)}
    lists = {name: tuple(values[name]) for name in ("stages", "to_blame")}
    return FailureReport(**{**values, **lists, "kind": FailureKind(values["kind"])})
