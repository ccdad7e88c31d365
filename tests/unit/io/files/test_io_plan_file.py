"""Plan files."""

import copy
import dataclasses
import json
import re

import pytest

from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.files.plan_file import input_hashes, plan_file_of, read_plan_file, to_tree


def read(tree):
    return plan_file_of(parse_document(format_json(tree), file="f"))


@pytest.fixture
def tree(tiny_plan_file):
    """The tiny plan, to be changed at will."""
    return json.loads(format_json(to_tree(tiny_plan_file)))


def test_plan_file_reads_back_equal(tiny_plan_file, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(format_json(to_tree(tiny_plan_file)))
    assert read_plan_file(path) == tiny_plan_file


def test_keys_are_sorted_and_lines_end_at_the_end(tiny_plan_file):
    text = format_json(to_tree(tiny_plan_file))
    assert list(json.loads(text)) == ["certificate", "inputs", "plan", "predicted", "provenance", "schema"]
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


def test_stages_name_their_layers(tree):
    first, second = tree["plan"]["pipelines"][0]["stages"]
    assert (first["first_layer"], first["last_layer"]) == ("embedding", "attention-2")
    assert (second["first_layer"], second["last_layer"]) == ("feed-forward-2", "head")


def test_unlimited_memory_is_written_as_a_word(tiny_plan_file):
    stage = dataclasses.replace(tiny_plan_file.predicted.stages[0], limit_bytes=float("inf"))
    predicted = dataclasses.replace(tiny_plan_file.predicted, stages=(stage, stage))
    changed = dataclasses.replace(tiny_plan_file, predicted=predicted)
    tree = to_tree(changed)
    assert tree["predicted"]["stages"][0]["limit_bytes"] == "unlimited"
    assert read(tree) == changed


def test_hashes_follow_the_inputs(tiny_plan_file, tree):
    """A changed input reads well; that it is not the one planned for shows in its hash."""
    tree["inputs"]["profile"]["layers"][0]["saved_bytes"] = 1.0
    changed = read(tree)
    now, then = input_hashes(changed.problem), dict(changed.provenance.input_hashes)
    assert {name for name in now if now[name] != then[name]} == {"profile"}
    assert input_hashes(tiny_plan_file.problem) == dict(tiny_plan_file.provenance.input_hashes)


def test_hash_does_not_depend_on_the_order_of_tables(tiny_problem):
    """Times listed by device type in another order are the same input."""
    layers = tuple(dataclasses.replace(layer, times=layer.times[::-1]) for layer in tiny_problem.model.layers)
    shuffled = dataclasses.replace(tiny_problem, model=dataclasses.replace(tiny_problem.model, layers=layers))
    assert input_hashes(shuffled) == input_hashes(tiny_problem)


STAGE = ("plan", "pipelines", 0, "stages")


@pytest.mark.parametrize(
    ("steps", "value", "complaint"),
    [
        ((*STAGE, 0, "devices", 0), "fats/0", "'fats/0' is not a device of cluster 'tiny-2x2', did you mean 'fast/0'?"),
        ((*STAGE, 1, "devices", 0), "fast/0", "'fast/0' is used twice"),
        ((*STAGE, 0, "devices", 1), "slow/0", "stage: devices must be in one island, or on whole hosts of one class"),
        ((*STAGE, 1, "devices"), ["slow/0", "slow/1"], "must be replicas x tensor_parallel = 1 devices, got 2"),
        ((*STAGE, 0, "tensor_parallel"), 2, "must be replicas x tensor_parallel = 4 devices, got 2"),
        ((*STAGE, 0, "replicas"), 3, "must divide the micro-batch 4, got 3"),
        ((*STAGE, 0, "start"), 1, "must be 0, got 1"),
        ((*STAGE, 1, "start"), 5, "must be 4, got 5"),
        ((*STAGE, 1, "stop"), 5, "must be 6, the number of layers, got 5"),
        ((*STAGE, 1, "stop"), 7, "must be above start and at most 6, got 7"),
        ((*STAGE, 0, "first_layer"), "head", "must be 'embedding' according to start and stop, got 'head'"),
        ((*STAGE, 0, "warmup_depth"), 9, "must be at most 8, the number of micro-batches, got 9"),
        ((*STAGE, 1, "warmup_depth"), 3, "must be at most 2, that of the previous stage, got 3"),
        (
            (*STAGE, 0, "forward_micro_batch"),
            2,
            "must be 4, the micro-batch size (others need schedule gpipe and 1 micro-batch)",
        ),
        (("plan", "num_microbatches"), 7, "micro_batch x num_microbatches must be the global batch 32, got 4 x 7"),
        (("plan", "num_sliced"), 9, "must be at most 8, the number of micro-batches, got 9"),
        (("plan", "synchronisation"), "wave", "must be 'all-reduce', got 'wave'"),
        (("predicted", "stages"), [], "must be one per stage of a pipeline, 2, got 0"),
        (("certificate", "status"), "infeasible", "must be 'optimal' or 'feasible' or 'interrupted', got 'infeasible'"),
        (("inputs", "job", "global_batch"), 31, "none of the micro-batch sizes 2, 4 divides the global batch 31"),
        (("inputs", "cluster", "servers", 0, "nam"), 1, "unknown key, did you mean 'name'?"),
    ],
)
def test_part_that_does_not_fit_is_told_with_its_place(complaints_of, tree, steps, value, complaint):
    tree["inputs"]["job"]["micro_batches"] = [2, 4]
    place = tree
    for step in steps[:-1]:
        place = place[step]
    place[steps[-1]] = value
    faults = complaints_of(plan_file_of, format_json(tree))
    assert any(complaint in fault for fault in faults)
    assert all(re.match(r"\d+: (plan|predicted|inputs|certificate)\.", fault) for fault in faults)


def test_pipelines_that_take_turns_read_back_equal(turns_plan_file):
    assert read(to_tree(turns_plan_file)) == turns_plan_file


SECOND = ("plan", "pipelines", 1, "stages")


@pytest.mark.parametrize(
    ("steps", "value", "complaint"),
    [
        (
            ("plan", "host_splits"),
            [],
            "pipelines: must divide the cluster into 2 equal shares, accepted: [1, 1]",
        ),
        (("plan", "host_splits"), [2, 1], "equal shares, accepted: [1, 1], got [2, 1]"),
        (("plan", "num_microbatches"), 2, "pipelines x micro_batch x num_microbatches must be the global batch 32"),
        (
            ("plan", "num_microbatches"),
            3,
            "must give a number of device groups that divides the 3 micro-batches, got 2",
        ),
        (("plan", "chunks"), 3, "must divide the number of stages of a pipeline, 4, got 3"),
        (("plan", "schedule"), "1f1b", "must be 1 under schedule 1f1b, got 2"),
        (
            ("plan", "num_sliced"),
            1,
            "num_sliced: must be 0: micro-batches of 4 under interleaved cannot be halved, got 1",
        ),
        ((*STAGE, 2, "devices", 0), "slow/1", "must be those of stage 0, which is in the same device group"),
        ((*STAGE, 1, "devices", 0), "slow/1", "'slow/1' is not in the share of the first pipeline"),
        ((*STAGE, 3, "warmup_depth"), 4, "must be 1, got 4"),
        ((*SECOND, 1, "devices", 0), "slow/0", "'slow/0' is used twice"),
        ((*SECOND, 3, "devices", 0), "fast/1", "must be ['slow/1'] as in the first pipeline, got ['fast/1']"),
        ((*SECOND, 3, "stop"), 5, "must be 6 as in the first pipeline, got 5"),
        ((*SECOND, 0, "recompute"), True, "must be False as in the first pipeline, got True"),
        (SECOND, [], "must be a non-empty list"),
    ],
)
def test_pipelines_that_do_not_fit_are_told_with_their_place(complaints_of, turns_plan_file, steps, value, complaint):
    tree = json.loads(format_json(to_tree(turns_plan_file)))
    place = tree
    for step in steps[:-1]:
        place = place[step]
    place[steps[-1]] = value
    faults = complaints_of(plan_file_of, format_json(tree))
    assert any(complaint in fault for fault in faults)
    assert all(re.match(r"\d+: plan\.", fault) for fault in faults)


def test_pipelines_have_the_same_number_of_stages(complaints_of, turns_plan_file):
    tree = json.loads(format_json(to_tree(turns_plan_file)))
    tree["plan"]["pipelines"][1]["stages"].pop()
    (complaint,) = complaints_of(plan_file_of, format_json(tree))
    assert complaint.endswith("plan.pipelines[1].stages: must be as many as in the first pipeline, 4, got 3")


def test_single_pipeline_divides_nothing(complaints_of, tree):
    tree["plan"]["host_splits"] = [1, 1]
    (complaint,) = complaints_of(plan_file_of, format_json(tree))
    assert complaint.endswith("plan.host_splits: must be empty for a single pipeline, got [1, 1]")


def test_devices_that_share_a_replica_are_read(tree):
    """Two fast devices, one replica."""
    first = tree["plan"]["pipelines"][0]["stages"][0]
    first.update({"replicas": 1, "tensor_parallel": 2})
    stage = read(tree).plan.stages[0]
    assert (stage.replicas, stage.tensor_parallel) == (1, 2)


def test_plans_without_halves_are_written_as_before(tiny_plan_file, tree):
    """The hashes of older plans and jobs stay the same."""
    assert "num_sliced" not in tree["plan"]
    assert not {"slice", "action_overhead_s"} & tree["inputs"]["job"].keys()
    sliced = dataclasses.replace(tiny_plan_file, plan=dataclasses.replace(tiny_plan_file.plan, num_sliced=2))
    assert to_tree(sliced)["plan"]["num_sliced"] == 2
    assert read(to_tree(sliced)) == sliced


def test_faults_of_all_parts_are_told_at_once(complaints_of, tree):
    """A stage that ends too early has the wrong last layer, too."""
    broken = copy.deepcopy(tree)
    broken["plan"]["pipelines"][0]["stages"][0]["devices"][0] = "nowhere/0"
    broken["plan"]["pipelines"][0]["stages"][1]["stop"] = 5
    broken["plan"]["num_microbatches"] = 9
    assert len(complaints_of(plan_file_of, format_json(broken))) == 4


def test_profile_and_job_of_unlike_precision_are_refused(complaints_of, tree):
    tree["inputs"]["job"]["precision"] = "fp32"
    assert "precision must be the job's fp32" in complaints_of(plan_file_of, format_json(tree))[0]
