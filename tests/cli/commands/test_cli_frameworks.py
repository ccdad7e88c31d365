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


@pytest.mark.parametrize(("framework", "kinds"), [("megatron", "context,zero1"), ("torchtitan", "fsdp")])
def test_operators_are_divided_as_the_framework_can(plan, plan_json, framework, kinds, tmp_path):
    """A single pipeline of one replica per stage, and two devices for each."""
    path = tmp_path / "plan.json"
    alike = ("--pipelines", "1", "--replicas", "1", "--tensor-parallel", "2")
    options = ("--for", framework, "--sharding", kinds, "--precision", "fp32", "--no-compare-free")
    answer = plan_json(*SMALL, *alike, *options, "-o", path)
    assert answer["status"] == "optimal"
    assert {stage["strategy"] for stage in answer["stages"]} <= {"ZeRO-1 2", "FSDP 2"}
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
        (
            ("--zero1", "--for", "torchtitan", "--precision", "bf16"),
            "job: zero1 must be left out: torchtitan has it in pipelines",
        ),
        (("--model", "resnet50"), "model 'resnet50': layer 'stem' of kind 'convolution' is not a known part"),
    ],
)
def test_what_the_framework_lacks_is_refused(plan, options, message):
    result = plan(*SMALL, "--for", "megatron", *options)
    assert result.exit_code == 3
    assert message in result.stderr
