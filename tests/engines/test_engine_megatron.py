"""Exports for Megatron-LM, read by megatron-core: its configuration, its layout and its groups of ranks."""

import pytest

from tests.exported_plans import accepted, built, chains, exported

torch = pytest.importorskip("torch")
pytest.importorskip("megatron.core", reason="megatron-core is not installed; it is in the extra `engines`")

from megatron.core.parallel_state import RankGenerator  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402

from stagecut.planner.io.writers.blocks import stage_blocks  # noqa: E402
from stagecut.planner.io.writers.uniform_plan import cuts_of  # noqa: E402

SHAPES = {
    "llama3-8b": {"hidden_size": 4096, "num_attention_heads": 32, "num_query_groups": 8},
    "mixtral-8x7b": {
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_query_groups": 8,
        "num_moe_experts": 8,
        "add_bias_linear": False,
    },
    "gpt2-xl": {"hidden_size": 1600, "num_attention_heads": 25},
    "bert-large": {"hidden_size": 1024, "num_attention_heads": 16},
}
CONFIGURED = {
    "num-layers",
    "tensor-model-parallel-size",
    "pipeline-model-parallel-size",
    "pipeline-model-parallel-layout",
    "sequence-parallel",
    "bf16",
    "recompute-granularity",
    "recompute-method",
    "recompute-num-layers",
}
"""Arguments that are fields of the configuration; the others are only the trainer's."""


def arguments_of(case):
    lines = exported(case, "megatron")["arguments.txt"].splitlines()
    return dict(line[2:].partition(" ")[::2] for line in lines if line.startswith("--"))


def configured(case):
    """The configuration as Megatron-LM's trainer makes it from the arguments."""
    arguments = arguments_of(case)
    fields = {name.replace("-", "_"): _value(text) for name, text in arguments.items() if name in CONFIGURED}
    return TransformerConfig(**SHAPES[case.model], **fields, params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16)


def _value(text):
    return True if text == "" else int(text) if text.isdigit() else text


@accepted("megatron")
def test_megatron_accepts_the_configuration_and_builds_the_stages_of_the_plan(case):
    problem, plan = built(case)
    config, blocks = configured(case), stage_blocks(problem.model, cuts_of(plan))
    if len(plan.stages) == 1:
        assert config.pipeline_model_parallel_layout is None
        return
    layout = config.pipeline_model_parallel_layout
    assert layout.virtual_pipeline_model_parallel_size == plan.chunks
    for index, stage in enumerate(blocks):
        chunk, group = divmod(index, plan.num_groups)
        names = [layer.name for layer in layout.layout[group][chunk]]
        wanted = ["embedding"] * stage.embedding + ["decoder"] * len(stage.blocks) + ["loss"] * stage.head
        assert names == wanted


@accepted("megatron")
def test_ranks_of_a_pipeline_are_the_devices_of_the_plan(case):
    """The order is that of `--use-tp-pp-dp-mapping`, or the default one."""
    _, plan = built(case)
    arguments, text = arguments_of(case), exported(case, "megatron")["arguments.txt"]
    devices = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("# rank")]
    order = "tp-cp-ep-pp-dp" if "use-tp-pp-dp-mapping" in arguments else "tp-cp-ep-dp-pp"
    sizes = {"tp": case.tp, "pp": plan.num_groups, "dp": len(devices) // case.tp // plan.num_groups}
    ranks = RankGenerator(**sizes, ep=1, cp=1, order=order)
    assert {tuple(devices[rank] for rank in group) for group in ranks.get_ranks("pp")} == chains(plan)
    shared = {frozenset(devices[rank] for rank in group) for group in ranks.get_ranks("tp")}
    stages = [stage for pipeline in plan.pipelines for stage in pipeline.stages]
    starts = range(0, len(stages[0].devices), case.tp)
    assert shared == {frozenset(stage.devices[start : start + case.tp]) for stage in stages for start in starts}


@accepted("megatron")
def test_sizes_make_the_global_batch(case):
    _, plan = built(case)
    arguments = arguments_of(case)
    samples = int(arguments["micro-batch-size"]) * plan.num_microbatches * case.replicas * case.pipelines
    assert samples == int(arguments["global-batch-size"])
    assert ("sequence-parallel" in arguments) == (case.tp > 1)
    assert ("use-distributed-optimizer" in arguments) == case.zero1
