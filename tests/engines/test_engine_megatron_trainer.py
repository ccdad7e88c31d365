"""Exports for Megatron-LM, parsed and validated by the trainer itself."""

import re
from types import SimpleNamespace

import pytest

from stagecut.planner.core.frameworks import Framework
from stagecut.planner.io.writers.megatron import megatron_files
from tests.engines.test_engine_searched import searched
from tests.exported_plans import accepted, built, exported

torch = pytest.importorskip("torch")
reason = "Megatron-LM's trainer is not installed; the extra `engines` has it from Python 3.12 on"
trainer = pytest.importorskip("megatron.training.arguments", reason=reason, exc_type=ImportError)

LLAMA = "--hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8"
SHAPES = {
    "llama3-8b": LLAMA,
    "mixtral-8x7b": f"{LLAMA} --num-experts 8 --disable-bias-linear",
    "gpt2-xl": "--hidden-size 1600 --num-attention-heads 25",
    "bert-large": "--hidden-size 1024 --num-attention-heads 16",
}
OTHERS = "--max-position-embeddings 8192 --tokenizer-type NullTokenizer --vocab-size 32000 --train-iters 1 --lr 1e-4"
"""What the README beside an export leaves to the user, besides the shape of the model."""


@pytest.fixture
def validated(monkeypatch):
    """The arguments of an export as the trainer takes them, on devices of the generation of A100."""

    def read(model, files):
        text, readme = files["arguments.txt"], files["README.md"]
        words = [word for line in text.splitlines() if line.startswith("--") for word in line.split()]
        monkeypatch.setattr("sys.argv", ["pretrain_gpt.py", *SHAPES[model].split(), *OTHERS.split(), *words])
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", str(text.count("\n# rank ")))
        monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
        for name, value in re.findall(r"(CUDA_DEVICE_MAX_CONNECTIONS)=(\d+) torchrun", readme):
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: SimpleNamespace(major=8, minor=0))
        return trainer.validate_args(trainer.parse_args())

    return read


@accepted("megatron")
def test_the_trainer_accepts_the_arguments_and_counts_copies_as_planned(case, validated):
    _, plan = built(case)
    arguments = validated(case.model, exported(case, "megatron"))
    assert arguments.data_parallel_size == case.replicas * case.pipelines
    assert arguments.pipeline_model_parallel_size == plan.num_groups
    assert arguments.tensor_model_parallel_size == case.tp
    assert arguments.sequence_parallel == (case.tp > 1)
    assert arguments.use_distributed_optimizer == case.zero1
    assert (arguments.virtual_pipeline_model_parallel_size or 1) == plan.chunks
    per_iteration = arguments.micro_batch_size * arguments.data_parallel_size * plan.num_microbatches
    assert arguments.global_batch_size == per_iteration


@pytest.mark.parametrize(
    ("model", "cluster", "kinds", "micro_batch"),
    [
        ("llama3-8b", "dgx-a100-16", ("context", "zero1"), 2),
        ("llama3-8b", "dgx-a100-16", ("tensor", "sequence", "zero1"), 2),
        ("llama3-8b", "h100-8", ("fsdp",), 8),
        ("mixtral-8x7b", "three-generations-64", ("experts", "zero1"), 8),
    ],
)
def test_the_trainer_accepts_searched_shardings(model, cluster, kinds, micro_batch, validated):
    sizes = {"tensor_parallel": 8, "micro_batches": (micro_batch,)}
    problem, plan, degrees = searched(Framework.MEGATRON, *kinds, **sizes, model=model, cluster=cluster)
    arguments = validated(model, megatron_files(problem, plan))
    assert arguments.context_parallel_size == degrees.context
    assert arguments.data_parallel_size == degrees.data
    assert arguments.tensor_model_parallel_size == degrees.tensor
    assert arguments.expert_model_parallel_size == degrees.experts
    assert arguments.use_megatron_fsdp == ("fsdp" in kinds)
    assert max(degrees.context, degrees.tensor, degrees.data, degrees.experts) > 1
