"""`plan solve --for`: plans that a framework can run."""

import pytest

from stagecut.planner.io.files.plan_file import read_plan_file

SMALL = (
    *("solve", "--model", "gpt2-345m", "--cluster", "4 t4 pcie3x16 eth25", "--global-batch", "16"),
    *("--gap", "5%", "--quiet"),
)


@pytest.mark.parametrize("framework", ["megatron", "deepspeed", "torchtitan"])
def test_a_plan_for_a_framework_converts_and_says_what_the_restriction_costs(plan, plan_json, framework, tmp_path):
    path = tmp_path / "plan.json"
    answer = plan_json(*SMALL, "--for", framework, "-o", path)
    free = answer["without_framework"]
    # Whatever a framework can run, others can run too.
    assert free["bound_s"] <= answer["objective_s"]
    assert read_plan_file(path).problem.job.framework == framework
    assert plan("convert", path, "--to", framework).exit_code == 0
    assert plan("check", path).exit_code == 0


def test_the_comparison_can_be_left_out(plan_json):
    answer = plan_json(*SMALL, "--for", "megatron", "--no-compare-free")
    assert answer["without_framework"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--schedule", "gpipe"), "job: schedules must be those of Megatron-LM, 1f1b, interleaved, got 'gpipe'"),
        (("--slice", "auto"), "job: slice must be left out: Megatron-LM does not halve micro-batches"),
        (("--sharding", "fsdp"), "job: sharding must be left out: Megatron-LM divides layers by heads and width only"),
        (("--model", "resnet50"), "model 'resnet50': layer 'stem' of kind 'convolution' is not a known part"),
    ],
)
def test_what_the_framework_lacks_is_refused(plan, options, message):
    result = plan(*SMALL, "--for", "megatron", *options)
    assert result.exit_code == 3
    assert message in result.stderr
