"""Records of runs survive being written and read."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.files.job import job_of
from stagecut.planner.io.files.run_history import read_runs, to_tree
from stagecut.planner.io.files.schema import json_schema
from tests.runs import CONTAMINATED, DILATED, RUN

PAGE = (Path(__file__).parents[4] / "docs" / "files.md").read_text().partition("\n## Run\n")[2]


def _read(tree, tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(tree))
    (run,) = read_runs(path).runs
    return run


@pytest.mark.parametrize("run", [RUN, CONTAMINATED, DILATED, replace(RUN, check=None, sequence_length=None)])
def test_a_run_reads_back_as_it_was(run, tmp_path):
    assert _read(to_tree(run), tmp_path) == run


def test_differences_that_are_no_number_become_null(tmp_path):
    """JSON has no infinity; it is read as one."""
    failed = replace(RUN, check=replace(RUN.check, loss_difference=float("inf"), passed=False))
    tree = to_tree(failed)
    assert tree["check"]["loss_difference"] is None
    assert _read(tree, tmp_path) == failed


def test_derived_figures_are_in_the_file():
    """10 s for 4 samples of 8 tokens where 8 s were predicted."""
    tree = to_tree(RUN)
    assert (tree["error"], tree["samples_per_s"], tree["tokens_per_s"]) == (0.25, 0.4, 3.2)


def test_a_run_is_told_from_other_kinds_of_files():
    """It has a global batch, as a job has."""
    with pytest.raises(BadInputError, match="expected a job file, got a run file"):
        job_of(parse_document(format_json(to_tree(RUN)), file="f"))


def test_example_of_the_documentation_is_read(tmp_path):
    example = re.search(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL).group(1)
    run = _read(json.loads(example), tmp_path)
    assert run.error == pytest.approx(0.04)
    assert json.loads(example).keys() == to_tree(run).keys()
    assert json.loads(example)["samples_per_s"] == pytest.approx(run.samples_per_s, rel=1e-2)


def test_every_key_is_in_the_documentation():
    schema = json_schema("run")
    keys = {key for part in (schema, *schema["$defs"].values()) for key in part.get("properties", ())}
    assert {key for key in keys if not re.search(rf"\b{key}\b", PAGE)} == set()
