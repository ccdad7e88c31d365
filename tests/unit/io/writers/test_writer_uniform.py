"""Plans for other frameworks: what they say, and what they refuse."""

import tomllib
from dataclasses import replace
from itertools import pairwise

import pytest

from stagecut.models import build_model
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Server
from stagecut.planner.core.job import Job, Optimizer
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.model import SkipEdge
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule, warmup_depths
from stagecut.planner.io.writers.deepspeed import deepspeed_tree
from stagecut.planner.io.writers.megatron import layout_of, megatron_arguments
from stagecut.planner.io.writers.torchtitan import schedule_rows, torchtitan_files, torchtitan_toml
from stagecut.planner.simulator.action_lists import plan_actions

ADAMW = Optimizer(name="adamw", weight_bytes=2.0, gradient_bytes=2.0, state_bytes=12.0)
LLAMA = build_model("llama-mini", precision=Precision.BF16)
"""Embedding, four blocks of attention and feed-forward, head: layers 0 to 9."""


def problem_of(model=LLAMA, **job):
    rates = tuple((precision, 1e12) for precision in Precision)
    kind = DeviceType(name="gpu", peak_flops_per_s=rates, memory_bytes=1e12)
    server = Server(name="node", islands=(Island(device_type="gpu", count=4),))
    choices = {
        "global_batch": 16,
        "optimizer": ADAMW,
        "precision": Precision.BF16,
        "micro_batches": (4,),
        "schedules": tuple(Schedule),
        **job,
    }
    return Problem(
        model=model, cluster=Cluster(name="four", device_types=(kind,), servers=(server,)), job=Job(**choices)
    )


def plan_of(*cuts, schedule=Schedule.ONE_F_ONE_B, chunks=1, **changes):
    """Stages between the cuts, two replicas each on devices of their own; micro-batches of 4, four of them."""
    stages = []
    depths = warmup_depths(schedule, len(cuts) - 1, 4, chunks=chunks)
    groups = (len(cuts) - 1) // chunks
    for index, (start, stop) in enumerate(pairwise(cuts)):
        group = index % groups
        stages.append(
            Stage(
                start=start,
                stop=stop,
                devices=(f"node/{2 * group}", f"node/{2 * group + 1}"),
                replicas=2,
                warmup_depth=depths[index],
                forward_micro_batch=4,
                backward_micro_batch=4,
            )
        )
    for index, change in changes.pop("stage_changes", {}).items():
        stages[index] = replace(stages[index], **change)
    return Plan(
        schedule=schedule,
        micro_batch=4,
        num_microbatches=4,
        pipelines=(Pipeline(stages=tuple(stages)),),
        chunks=chunks,
        **changes,
    )


def test_megatron_gets_a_layout_and_sizes():
    """Three blocks of four on the first stage; 2 samples per replica, 2 copies of everything."""
    lines = megatron_arguments(problem_of(), plan_of(0, 7, 10)).splitlines()
    arguments = dict(line.partition(" ")[::2] for line in lines if line.startswith("--"))
    assert arguments["--pipeline-model-parallel-layout"] == "Et*3|tL"
    assert arguments["--num-layers"] == "4"
    assert arguments["--pipeline-model-parallel-size"] == "2"
    assert arguments["--micro-batch-size"] == "2"
    assert arguments["--global-batch-size"] == "16"
    assert arguments["--seq-length"] == "256"
    assert "--bf16" in arguments
    assert "# rank 2: node/2" in lines


def test_interleaved_chunks_are_stages_of_the_layout():
    plan = plan_of(0, 3, 5, 7, 10, schedule=Schedule.INTERLEAVED, chunks=2)
    text = megatron_arguments(problem_of(zero1=True), plan)
    assert "--pipeline-model-parallel-layout Et|t|t|tL\n" in text
    assert "--pipeline-model-parallel-size 2\n" in text
    assert "--use-distributed-optimizer\n" in text


def test_a_run_of_layers_before_the_head_ends_in_a_comma():
    """`t*2L` would read as it stands, the comma keeps number and letter apart."""
    assert "--pipeline-model-parallel-layout Et|t*3,L\n" in megatron_arguments(problem_of(), plan_of(0, 3, 10))
    assert layout_of(()) == ""


@pytest.mark.parametrize(("cuts", "group"), [((0, 1, 10), 0), ((0, 9, 10), 1)])
def test_megatron_hangs_on_devices_without_a_transformer_layer(cuts, group):
    with pytest.raises(UnsupportedError, match=f"device group {group} has no transformer layer"):
        megatron_arguments(problem_of(), plan_of(*cuts))


def test_a_chunk_of_the_head_alone_is_fine_beside_other_chunks():
    plan = plan_of(0, 3, 5, 9, 10, schedule=Schedule.INTERLEAVED, chunks=2)
    assert "--pipeline-model-parallel-layout Et|t|t*2|L\n" in megatron_arguments(problem_of(), plan)


def test_megatron_unties_the_weights_of_models_that_do():
    """Embedding and head of Llama have weights of their own, those of GPT share them."""
    assert "--untie-embeddings-and-output-weights\n" in megatron_arguments(problem_of(), plan_of(0, 7, 10))
    model = build_model("gpt-mini", precision=Precision.BF16)
    assert "untie" not in megatron_arguments(problem_of(model), plan_of(0, 7, model.num_layers))


def test_torchtitan_gets_modules_and_degrees():
    tables = tomllib.loads(torchtitan_toml(problem_of(zero1=True), plan_of(0, 7, 10)))
    parallelism = tables["parallelism"]
    assert parallelism["module_fqns_per_model_part"] == [
        ["tok_embeddings", "layers.0", "layers.1", "layers.2"],
        ["layers.3", "norm", "output"],
    ]
    assert parallelism["pipeline_parallel_schedule"] == "1F1B"
    assert parallelism["pipeline_parallel_degree"] == 2
    assert parallelism["data_parallel_replicate_degree"] == 1
    assert parallelism["data_parallel_shard_degree"] == 2
    assert parallelism["fsdp_reshard_after_forward"] == "never"
    assert parallelism["pipeline_parallel_microbatch_size"] == 2
    sizes = {"local_batch_size": 8, "global_batch_size": 16, "seq_len": 256}
    assert tables["training"] == {**sizes, "mixed_precision_param": "bfloat16"}
    assert tables["activation_checkpoint"] == {"mode": "none"}


def test_flags_of_torchtitan_name_its_newer_head():
    files = torchtitan_files(problem_of(zero1=True), plan_of(0, 7, 10), actions=[])
    lines = files["torchtitan-0.3.flags"].splitlines()
    names = "tok_embeddings,layers.0,layers.1,layers.2 layers.3,norm,lm_head"
    assert f"--parallelism.module_fqns_per_model_part {names}" in lines
    assert "--training.disable_cuda_graphs" in lines
    assert lines[-1] == "activation_checkpoint:none"


def test_torchtitan_accumulates_over_local_batches_without_a_pipeline():
    """Its trainer takes a local batch at once: 2 samples of a micro-batch of 4 on each of two replicas."""
    tables = tomllib.loads(torchtitan_toml(problem_of(), plan_of(0, 10)))
    assert tables["training"]["local_batch_size"] == 2
    assert tables["parallelism"]["data_parallel_replicate_degree"] == 2
    assert "module_fqns_per_model_part" not in tables["parallelism"]


@pytest.mark.parametrize(
    ("model", "job", "choices", "complaint"),
    [
        (LLAMA, {}, {}, "2 copies of whole weights exclude pipelines"),
        (
            build_model("llama-mini", precision=Precision.FP16),
            {"precision": Precision.FP16},
            {},
            "it trains in bf16 or fp32, not fp16",
        ),
        (build_model("gpt-mini", precision=Precision.BF16), {"zero1": True}, {}, "cannot share the weights"),
        (LLAMA, {"zero1": True}, {"num_microbatches": 1}, "1f1b needs as many micro-batches as stages, 2, not 1"),
        (replace(LLAMA, sequence_length=255), {"zero1": True}, {}, "a sequence length that 2 divides, got 255"),
    ],
)
def test_what_torchtitan_refuses_itself_is_refused(model, job, choices, complaint):
    plan = replace(plan_of(0, 7, model.num_layers), **choices)
    with pytest.raises(UnsupportedError, match=complaint):
        torchtitan_toml(problem_of(model, **job), plan)


def test_eager_1f1b_needs_the_list_of_actions():
    plan = plan_of(0, 7, 10, schedule=Schedule.EAGER_ONE_F_ONE_B)
    with pytest.raises(UnsupportedError, match="--schedule-csv"):
        torchtitan_toml(problem_of(), plan)
    parallelism = tomllib.loads(torchtitan_toml(problem_of(zero1=True), plan, schedule_csv="order.csv"))["parallelism"]
    assert parallelism["pipeline_parallel_schedule"] == "PipelineScheduleMulti"
    assert parallelism["pipeline_parallel_schedule_csv"] == "order.csv"


def test_shorter_rows_of_a_schedule_are_filled_up():
    assert schedule_rows([["0F0", "0B0"], ["1F0"]]) == "0F0,0B0\n1F0,\n"


@pytest.mark.parametrize(
    ("schedule", "cuts", "chunks"),
    [
        (Schedule.EAGER_ONE_F_ONE_B, (0, 7, 10), 1),
        (Schedule.GPIPE, (0, 7, 10), 1),
        (Schedule.INTERLEAVED, (0, 3, 5, 7, 10), 2),
    ],
)
def test_torch_reads_the_list_of_actions(schedule, cuts, chunks):
    """Torch's own loader reads one action per column, and its check of the whole schedule accepts them."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    plan = plan_of(*cuts, schedule=schedule, chunks=chunks)
    names = [[f"{action.stage}{action.op}{action.lo // 4}" for action in row] for row in plan_actions(plan)]
    rows = [line.split(",") for line in schedule_rows(names).splitlines()]
    read = {rank: [schedules._Action.from_str(cell) for cell in row] for rank, row in enumerate(rows)}
    stages = schedules._validate_schedule(read, 2, len(cuts) - 1, 4)
    assert stages == {index: index % 2 for index in range(len(cuts) - 1)}


def test_deepspeed_gets_bounds_and_a_topology():
    """Any cut will do, also inside of a block. Four micro-batches of two samples on each of two copies: 16."""
    tree = deepspeed_tree(problem_of(zero1=True), plan_of(0, 4, 10))
    assert tree["parts"] == [0, 4, 10]
    assert tree["topology"] == {"axes": ["pipe", "data", "model"], "dims": [2, 2, 1]}
    assert tree["config"] == {
        "train_batch_size": 16,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 1},
    }


MIXED = {
    0: {"replicas": 1, "tensor_parallel": 2, "recompute": True, "forward_micro_batch": 2, "backward_micro_batch": 2}
}


@pytest.mark.parametrize("write", [megatron_arguments, torchtitan_toml, deepspeed_tree])
def test_stages_used_differently_are_refused_with_every_reason(write):
    with pytest.raises(UnsupportedError) as caught:
        write(problem_of(), plan_of(0, 7, 10, stage_changes=MIXED))
    reasons = "\n".join(caught.value.complaints)
    for part in (
        "replicas must be the same for every stage, got 1, 2",
        "tensor_parallel must be the same",
        "recompute must be the same for every stage, got false, true",
        "micro-batches are unequal",
    ):
        assert part in reasons


@pytest.mark.parametrize("write", [megatron_arguments, deepspeed_tree])
def test_schedules_that_a_framework_lacks_are_refused(write):
    with pytest.raises(UnsupportedError, match="it supports the schedules 1f1b"):
        write(problem_of(), plan_of(0, 7, 10, schedule=Schedule.GPIPE))


def test_a_skip_edge_across_a_stage_is_refused():
    model = replace(LLAMA, skip_edges=(SkipEdge(source=1, target=8, num_bytes=4.0),))
    with pytest.raises(UnsupportedError, match="skip edges cross stage boundaries 7"):
        deepspeed_tree(problem_of(model), plan_of(0, 7, 10))
    assert deepspeed_tree(problem_of(model), plan_of(0, 1, 10))["parts"] == [0, 1, 10]


@pytest.mark.parametrize("write", [megatron_arguments, torchtitan_toml])
def test_a_cut_inside_of_a_block_is_refused_where_blocks_are_the_unit(write):
    with pytest.raises(UnsupportedError, match=r"end inside a transformer layer, block0.attention \| block0"):
        write(problem_of(), plan_of(0, 2, 10))


def test_halved_micro_batches_are_refused():
    with pytest.raises(UnsupportedError, match="2 warm-up micro-batches are halved"):
        torchtitan_toml(problem_of(), plan_of(0, 7, 10, num_sliced=2))


def test_models_without_transformer_layers_are_refused():
    model = build_model("vgg16", precision=Precision.BF16)
    with pytest.raises(UnsupportedError, match="'convolution' is not a known part of a transformer"):
        megatron_arguments(problem_of(model), plan_of(0, 8, 16))
    whole = problem_of().model
    ends = replace(whole, layers=(whole.layers[0], whole.layers[-1]))
    with pytest.raises(UnsupportedError, match="there is no transformer block"):
        megatron_arguments(problem_of(ends), plan_of(0, 1, 2))


@pytest.mark.parametrize("name", ["Ünï 日本.csv", "🙂.csv", 'a"b\\c\x1b\x7f\n\u202e.csv'])
def test_any_name_of_a_schedule_is_a_string_of_torchtitan(name):
    plan = plan_of(0, 7, 10, schedule=Schedule.EAGER_ONE_F_ONE_B)
    text = torchtitan_toml(problem_of(zero1=True), plan, schedule_csv=name)
    assert text.isascii()
    assert tomllib.loads(text)["parallelism"]["pipeline_parallel_schedule_csv"] == name


def test_a_name_that_is_no_text_cannot_be_in_a_file_of_torchtitan():
    plan = plan_of(0, 7, 10, schedule=Schedule.EAGER_ONE_F_ONE_B)
    with pytest.raises(UnsupportedError, match="not valid UTF-8"):
        torchtitan_toml(problem_of(zero1=True), plan, schedule_csv="\udcff.csv")
