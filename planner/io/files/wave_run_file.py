"""Records of runs through waves, as files and histories hold them."""

import json
from pathlib import Path

from stagecut.planner.core.virtual_workers.wave_run_record import WaveRunRecord
from stagecut.planner.io.documents.canonical import Tree
from stagecut.planner.io.documents.records import tree_of
from stagecut.planner.io.files.run_history import OF_WAVES, append_line, check_tree

SCHEMA = 1


def to_tree(run: WaveRunRecord) -> Tree:
    """A record as a file holds it."""
    check = None if run.check is None else check_tree(run.check)
    return {"schema": SCHEMA, "kind": OF_WAVES, **tree_of(run), "check": check, "error": run.error}


def append_wave_run(path: str | Path, run: WaveRunRecord) -> None:
    """Append one run: see :func:`stagecut.planner.io.files.run_history.append_run`."""
    append_line(path, json.dumps(to_tree(run), separators=(",", ":"), sort_keys=True, allow_nan=False))
