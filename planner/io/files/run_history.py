"""Run histories: files with one record per line, to which every run appends its own."""

import fcntl
import io
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from stagecut.planner.core.messages.errors import BadInputError, OutputError
from stagecut.planner.core.run_record import CheckRecord, RunRecord, finite_or_none
from stagecut.planner.core.virtual_workers.wave_run_record import WaveRunRecord
from stagecut.planner.io.documents.canonical import Tree
from stagecut.planner.io.documents.complaints import format_where, shorten
from stagecut.planner.io.documents.input_file import open_input, unreadable
from stagecut.planner.io.documents.records import from_entry, tree_of
from stagecut.planner.io.documents.write import check_place
from stagecut.planner.io.files.run_entry import RunFile
from stagecut.planner.io.files.wave_run_entry import WaveRunFile

DEFAULT_HISTORY = "runs.jsonl"
"""Path in the current folder."""
OF_WAVES = "waves"
"""The kind of the records of :mod:`stagecut.planner.io.files.wave_run_file`; others have none."""
AnyRun = RunRecord | WaveRunRecord
MAX_LINE_BYTES = 16_000_000
MAX_HISTORY_BYTES = 100_000_000
MAX_SKIPPED = 1000
"""A file with more lines that are not records is rejected as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The runs of a file."""

    runs: tuple[RunRecord, ...]
    """Runs in the order in which they were appended."""
    wave_runs: tuple[WaveRunRecord, ...]
    """Those through waves."""
    skipped: tuple[str, ...]
    """Why lines could not be read, for example because a crash left one half-written."""


def check_appendable(path: str | Path) -> None:
    """Raise an OutputError if a path is a folder, is in a missing folder, or is not writable."""
    target = Path(path).resolve()
    check_place(path, target)
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise OutputError(f"{path}: is not writable; choose another path")


def append_run(path: str | Path, run: RunRecord) -> None:
    """Append one run: its whole line or nothing, even if others append at the same time.

    A line that a crash left half-written is terminated first. Raises the errors of :func:`check_appendable`, and an
    OutputError if the system fails to write.
    """
    append_line(path, json.dumps(to_tree(run), separators=(",", ":"), sort_keys=True, allow_nan=False))


def append_line(path: str | Path, line: str) -> None:
    """Append the record of a run, of whatever kind; see :func:`append_run`."""
    check_appendable(path)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            _append(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise OutputError(f"{path}: could not be appended to: {error.strerror}; this run is not recorded") from None


def read_runs(path: str | Path) -> History:
    """Read a history; lines that are not run records are reported and skipped.

    Raises a BadInputError if the file cannot be read, is too large, has lines but no run, or has too many other lines.
    """
    runs: list[RunRecord] = []
    wave_runs: list[WaveRunRecord] = []
    skipped: list[str] = []
    for number, line in _lines(Path(path)):
        try:
            run = _run_of(line)
            if isinstance(run, WaveRunRecord):
                wave_runs.append(run)
            else:
                runs.append(run)
        except BadInputError as fault:
            skipped.append(f"{path}:{number}: {fault}; line skipped")
        if len(skipped) > MAX_SKIPPED:
            raise BadInputError(f"{path}: more than {MAX_SKIPPED} lines are not runs", *skipped[:3])
    if skipped and not (runs or wave_runs):
        raise BadInputError(f"{path}: contains no run", *skipped[:3])
    return History(runs=tuple(runs), wave_runs=tuple(wave_runs), skipped=tuple(skipped))


def to_tree(run: RunRecord) -> Tree:
    """A record as a file holds it."""
    return {
        "schema": 1,
        **tree_of(run),
        "check": None if run.check is None else check_tree(run.check),
        "error": run.error,
        "samples_per_s": run.samples_per_s,
        "tokens_per_s": run.tokens_per_s,
    }


def _append(descriptor: int, line: bytes) -> None:
    """Append with a single write, which is undone if it is incomplete."""
    size = os.fstat(descriptor).st_size
    closing = b"\n" if size > 0 and os.pread(descriptor, 1, size - 1) != b"\n" else b""
    content = closing + line
    try:
        written = os.write(descriptor, content)
        if written < len(content):
            raise OSError(None, "no space left")
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbers and contents of the non-empty lines."""
    num_bytes = 0
    with _opened(path) as file:
        try:
            for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), start=1):
                num_bytes += len(line)
                if num_bytes > MAX_HISTORY_BYTES:
                    limit = f"{MAX_HISTORY_BYTES / 1e6:.0f} MB"
                    raise BadInputError(f"{path}: larger than {limit}, the limit for a history; start a new one")
                if line.strip():
                    yield number, line
        except OSError as error:
            raise unreadable(path, error) from None


def _opened(path: Path) -> io.BufferedReader:
    with suppress(OSError):
        if not path.exists():
            raise BadInputError(f"{path}: no such file; `plan run` creates one")
    return open_input(path)


def _run_of(line: bytes) -> AnyRun:
    """The run of a line."""
    try:
        tree = json.loads(line)
        if isinstance(tree, dict) and tree.get("kind") == OF_WAVES:
            return from_entry(WaveRunRecord, WaveRunFile.model_validate(tree))
        return from_entry(RunRecord, RunFile.model_validate(tree))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
        place = format_where(fault["loc"])
        raise BadInputError(f"{place}: {fault['msg'].lower()}, got {shorten(fault['input'])}") from None
    except (ValueError, RecursionError):
        half = "" if line.endswith(b"\n") else "; it is incomplete"
        raise BadInputError(f"not a run in JSON{half}") from None


def check_tree(check: CheckRecord) -> Tree:
    """A comparison as a file holds it."""
    return {
        **tree_of(check),
        "loss_difference": finite_or_none(check.loss_difference),
        "largest_gradient_difference": finite_or_none(check.largest_gradient_difference),
    }
