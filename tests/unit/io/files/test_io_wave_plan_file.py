"""Plan files of virtual workers."""

import json
import re
from pathlib import Path

import pytest

from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.files.plan_file import PlanFile, plan_file_of
from stagecut.planner.io.files.plan_file import to_tree as tree_of_pipelines
from stagecut.planner.io.files.wave_plan_file import any_plan_file_of, read_any_plan_file, to_tree

EARLIER = Path(__file__).parents[4] / "benchmarks" / "instances" / "gpt2-xl-hetpipe-16-batch-64.plan.json"


@pytest.fixture
def tree(wave_plan_file):
    """The plan of two unlike workers, to be changed at will."""
    return json.loads(format_json(to_tree(wave_plan_file)))


def test_plan_of_workers_reads_back_equal(wave_plan_file, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(format_json(to_tree(wave_plan_file)))
    assert read_any_plan_file(path) == wave_plan_file


def test_only_plans_of_workers_have_the_second_version(wave_plan_file, tiny_plan_file):
    """Files without workers, their bytes and their hashes stay what they were."""
    assert (to_tree(wave_plan_file)["schema"], to_tree(tiny_plan_file)["schema"]) == (2, 1)
    assert to_tree(tiny_plan_file) == tree_of_pipelines(tiny_plan_file)


def test_reader_of_both_kinds_reads_plans_without_workers(tiny_plan_file):
    document = parse_document(format_json(to_tree(tiny_plan_file)), file="f")
    assert any_plan_file_of(document) == tiny_plan_file


def test_a_stage_states_only_what_its_worker_does_not(tree):
    stage = tree["plan"]["workers"][0]["stages"][0]
    assert stage == {
        "start": 0,
        "stop": 4,
        "first_layer": "embedding",
        "last_layer": "attention-2",
        "device": "fast/0",
        "recompute": False,
        "warmup_depth": 2,
    }


def test_reader_of_pipelines_refuses_workers_in_one_line(complaints_of, tree):
    (complaint,) = complaints_of(plan_file_of, format_json(tree))
    assert re.match(r"\d+: plan.synchronisation: must be 'all-reduce' here, got a plan of virtual workers", complaint)


STAGE = ("plan", "workers", 0, "stages")
JOB = ("inputs", "job")
FAULTS = [
    (("schema",), 1, "schema: must be 2, got 1"),
    (("plan", "synchronisation"), "wps", "must be 'wsp', got 'wps', did you mean 'wsp'?"),
    (("plan", "synchronisation"), "all-reduce", "must be 'wsp', got 'all-reduce'"),
    (("plan", "workers"), [], "must be a non-empty list"),
    (("plan", "workers", 0, "in_flight"), 0, "must be a whole number from 1 to 1000000000, got 0"),
    (("plan", "workers", 0, "wave"), "2", "must be a whole number from 1 to 1000000000, got '2'"),
    (("plan", "clock_distance"), -1, "must be a whole number from 0 to 1000000000, got -1"),
    (("plan", "carrier"), "mail", "must be 'parameter-server' or 'delayed-all-reduce', got 'mail'"),
    (("plan", "carrier"), "delayed-all-reduce", "owners: must be empty with carrier delayed-all-reduce"),
    (("plan", "local_step"), "waves", "must be 'minibatch' or 'wave', got 'waves', did you mean 'wave'?"),
    (("plan", "shards"), "even", "must be 'spread' or 'local', got 'even'"),
    (("plan", "owners"), ["fast"], "must be one host per layer, 6, got 1"),
    (("plan", "owners", 2), "slo", "'slo' is not a host of the cluster, did you mean 'slow'?"),
    ((*STAGE, 0, "device"), "fats/0", "'fats/0' is not a device of cluster 'tiny-2x2', did you mean 'fast/0'?"),
    ((*STAGE, 1, "device"), "fast/1", "'fast/1' is used twice"),
    ((*STAGE, 0, "devices"), ["fast/0"], "unknown key, did you mean 'device'?"),
    ((*STAGE, 1, "start"), 5, "must be 4, got 5"),
    ((*STAGE, 1, "stop"), 5, "must be 6, the number of layers, got 5"),
    ((*STAGE, 1, "stop"), 7, "must be above start and at most 6, got 7"),
    ((*STAGE, 0, "last_layer"), "head", "must be 'attention-2' according to start and stop, got 'head'"),
    ((*STAGE, 0, "warmup_depth"), 3, "must be at most 2, the minibatches of a wave, got 3"),
    (("plan", "workers", 0, "in_flight"), 1, "must be at most 1, the minibatches in flight, got 2"),
    ((*STAGE, 1, "warmup_depth"), 3, "must be at most 2, that of the previous stage, got 3"),
    (("predicted", "workers"), [], "must be one per worker, 2, got 0"),
    (("predicted", "workers", 0, "stages"), [], "must be one per stage of the worker, 2, got 0"),
    (("predicted", "s_local"), -1, "must be a whole number from 0 to 1000000000, got -1"),
    (("certificate", "status"), "infeasible", "must be 'optimal' or 'feasible' or 'interrupted', got 'infeasible'"),
    ((*JOB, "waves"), None, "inputs.job: must have the key waves: plan.synchronisation is wsp"),
    ((*JOB, "micro_batches"), [2, 4], "must be a single size with waves: that of a minibatch"),
    ((*JOB, "waves", "clock_distance"), -1, "must be a whole number from 0 to 1000000000, got -1"),
    ((*JOB, "waves", "in_flight"), -2, "must be 'auto' or a whole number from 1 to 1000000000, got -2"),
    ((*JOB, "waves", "allocation"), "de", "must be 'np' or 'ed' or 'hd' or 'optimal', got 'de'"),
]


@pytest.mark.parametrize(("steps", "value", "complaint"), FAULTS)
def test_part_that_does_not_fit_is_told_with_its_place(complaints_of, tree, steps, value, complaint):
    faults = complaints_of(any_plan_file_of, format_json(changed(tree, steps, value)))
    assert any(complaint in fault for fault in faults)
    assert all(re.match(r"\d+: (schema|plan|predicted|inputs|certificate)", fault) for fault in faults)


def test_waves_are_not_for_plans_that_all_reduce(complaints_of, tiny_plan_file, wave_plan_file):
    tree = json.loads(format_json(to_tree(tiny_plan_file)))
    tree["inputs"]["job"] |= {"global_batch": 32, "micro_batches": [4], "waves": {}}
    complaints = complaints_of(any_plan_file_of, format_json(tree))
    assert any("inputs.job.waves: must be left out: plan.synchronisation is all-reduce" in each for each in complaints)


def test_faults_of_all_parts_are_told_at_once(complaints_of, tree):
    changed(tree, (*STAGE, 0, "device"), "nowhere/0")
    changed(tree, ("plan", "owners"), [])
    changed(tree, ("predicted", "workers"), [])
    assert len(complaints_of(any_plan_file_of, format_json(tree))) == 3


def test_a_plan_file_of_an_earlier_version_is_read_and_written_byte_for_byte():
    plan_file = read_any_plan_file(EARLIER)
    assert isinstance(plan_file, PlanFile)
    assert format_json(to_tree(plan_file)) == EARLIER.read_text()


def changed(tree, steps, value):
    """Change a tree at one place."""
    place = tree
    for step in steps[:-1]:
        place = place[step]
    place[steps[-1]] = value
    return tree
