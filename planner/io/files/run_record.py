"""Run records as files."""

from pathlib import Path

from stagecut.planner.core.run_record import CheckRecord, RunRecord, finite_or_none
from stagecut.planner.io.documents.canonical import Tree
from stagecut.planner.io.documents.records import from_entry, tree_of
from stagecut.planner.io.documents.tree import read_document
from stagecut.planner.io.documents.validate import validate
from stagecut.planner.io.files.run_entry import RunFile


def read_run(path: str | Path) -> RunRecord:
    """Read the record of one run; rates and the error are derived anew.

    Raises
    ------
    BadInputError
        With every fault of the file.
    """
    document = read_document(path)
    return document.complaints.finish(validate(document, RunFile, kind="run"), build_run)


def build_run(entry: RunFile) -> RunRecord:
    """The core data of an entry."""
    return from_entry(RunRecord, entry)


def to_tree(run: RunRecord) -> Tree:
    """A record as a file holds it."""
    return {
        "schema": 1,
        **tree_of(run),
        "check": None if run.check is None else _check_tree(run.check),
        "error": run.error,
        "samples_per_s": run.samples_per_s,
        "tokens_per_s": run.tokens_per_s,
    }


def _check_tree(check: CheckRecord) -> Tree:
    return {
        **tree_of(check),
        "loss_difference": finite_or_none(check.loss_difference),
        "largest_gradient_difference": finite_or_none(check.largest_gradient_difference),
    }
