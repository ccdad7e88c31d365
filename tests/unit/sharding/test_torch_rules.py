"""Placements of the catalogue's operators under every strategy are those that torch's DTensor gives them.

torch runs one rank of four on a process group that sends nothing; what it would send is counted. On a mesh of one axis:
placements follow for each axis by itself, and torch converts some that it has no rule for on several.
"""

import functools

import pytest
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.distributed.tensor import Shard as TorchShard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from stagecut.models.families.gpt import GptShape, gpt
from stagecut.models.families.llama import LlamaShape, llama
from stagecut.models.families.vgg import VGG16_CIFAR, vgg
from stagecut.planner.core.operators.strategy import WeightStorage
from stagecut.planner.core.precision import Precision
from stagecut.planner.sharding.placements import PARTIAL, REPLICATE, Shard
from stagecut.planner.sharding.strategies import (
    input_placements,
    output_placements,
    strategies,
    weight_placements,
)

SIZES = {
    "sample": 4,
    "token": 8,
    "key token": 8,
    "hidden": 16,
    "width": 64,
    "vocabulary": 128,
    "channel": 64,
    "channel in": 64,
    "row": 32,
    "column": 32,
    "kernel row": 3,
    "kernel column": 3,
}
NUM_HEADS = 4
GPT = gpt(GptShape(blocks=1, hidden=16, heads=NUM_HEADS, vocabulary=128, positions=8), 8)
LLAMA = llama(LlamaShape(blocks=1, hidden=16, heads=NUM_HEADS, key_heads=NUM_HEADS, width=64, vocabulary=128), 8)
VGG = vgg(VGG16_CIFAR)


def attention(queries, keys, values):
    """By heads of the last dimension; torch's kernel for processors has no rule for heads, its plain formula has."""
    parts = (tensor.unflatten(2, (NUM_HEADS, -1)).transpose(1, 2) for tensor in (queries, keys, values))
    with sdpa_kernel(SDPBackend.MATH):
        return functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)


def rms_norm(taken, weight):
    return functional.rms_norm(taken, (SIZES["hidden"],), weight)


def layer_norm(taken, weight, bias):
    return functional.layer_norm(taken, (SIZES["hidden"],), weight, bias)


CASES = {
    "gpt: norm": (GPT, "block0.attention", "norm", layer_norm),
    "gpt: qkv": (GPT, "block0.attention", "qkv", functional.linear),
    "gpt: attention": (GPT, "block0.attention", "attention", attention),
    "gpt: project": (GPT, "block0.attention", "project", functional.linear),
    "gpt: residual": (GPT, "block0.attention", "residual", torch.add),
    "gpt: activation": (GPT, "block0.feed-forward", "activation", functional.gelu),
    "gpt: down": (GPT, "block0.feed-forward", "down", functional.linear),
    "gpt: tokens": (GPT, "embedding", "tokens", functional.embedding),
    "llama: norm": (LLAMA, "block0.attention", "norm", rms_norm),
    "llama: qkv": (LLAMA, "block0.attention", "qkv", functional.linear),
    "llama: project": (LLAMA, "block0.attention", "project", functional.linear),
    "llama: logits": (LLAMA, "head", "project", functional.linear),
    "vgg: convolution": (VGG, "conv1-2", "convolution", functools.partial(functional.conv2d, padding=1)),
    "vgg: relu": (VGG, "conv1-2", "relu", functional.relu),
    "vgg: pool": (VGG, "conv1-2", "pool", functools.partial(functional.max_pool2d, kernel_size=2)),
}


@pytest.fixture(scope="module")
def group():
    """A process group of four that sends nothing, of which this process is the first."""
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    distributed.init_process_group("fake", rank=0, world_size=4, store=fake.FakeStore())
    yield
    distributed.destroy_process_group()


def operator_of(chain, layer, name):
    counts = next(own for own in chain.layers if own.name == layer)
    operators = counts.in_precision(Precision.FP32).operators
    return next(operator for operator in operators if operator.name == name)


def size_of(dim):
    return SIZES["hidden"] if dim == "head" else SIZES[dim]


def to_torch(own):
    return TorchShard(own.dim) if isinstance(own, Shard) else {REPLICATE: Replicate(), PARTIAL: Partial()}[own]


def from_torch(own):
    if own.is_partial():
        return PARTIAL
    return REPLICATE if own.is_replicate() else Shard(own.dim)


def tensor(dims, placements, mesh, *, whole_numbers):
    """Zeros in the parts of the first rank."""
    shape = [size_of(dim) for dim in dims]
    for size, own in zip(mesh.shape, placements, strict=True):
        if isinstance(own, Shard):
            shape[own.dim] //= size
    local = torch.zeros(shape, dtype=torch.long if whole_numbers else torch.float32)
    return DTensor.from_local(local, mesh, [to_torch(own) for own in placements], run_check=False)


def run_by_torch(operator, strategy, function, mesh):
    """Placements of what torch makes, and how many collectives it needs for that."""
    splits, looked_up = strategy.splits, operator.kind == "embedding"
    taken = [
        tensor(port.dims, input_placements(port, splits), mesh, whole_numbers=looked_up) for port in operator.inputs
    ]
    weights = [tensor(own.dims, weight_placements(own, splits), mesh, whole_numbers=False) for own in operator.weights]
    with CommDebugMode() as counts:
        made = function(*taken, *weights)
    return tuple(from_torch(own) for own in made.placements), counts.get_total_counts()


def without_channels(operator, strategy):
    """torch divides a convolution by samples only."""
    return operator.kind != "convolution" or set(strategy.splits) <= {"sample", ""}


@pytest.mark.parametrize("case", CASES)
def test_torch_leaves_the_output_of_every_strategy_where_we_do(case, group):
    chain, layer, name, function = CASES[case]
    operator, mesh = operator_of(chain, layer, name), init_device_mesh("cpu", (4,))
    tried = [
        own
        for own in strategies(operator, (4,), samples=SIZES["sample"])
        if own.storage is WeightStorage.REPLICATED and without_channels(operator, own)
    ]
    assert len(tried) > 1
    for strategy in tried:
        expected = output_placements(operator.outputs[0], strategy.splits)
        assert run_by_torch(operator, strategy, function, mesh) == (expected, 0), strategy.splits


def test_torch_computes_a_loss_on_a_divided_vocabulary_from_sums(group):
    """It all-reduces three numbers a token, which are not counted here, and does not gather the logits."""
    mesh = init_device_mesh("cpu", (4,))
    logits = DTensor.from_local(torch.zeros(8, 32), mesh, [TorchShard(1)], run_check=False)
    labels = DTensor.from_local(torch.zeros(8, dtype=torch.long), mesh, [Replicate()], run_check=False)
    with CommDebugMode() as counts, loss_parallel():
        functional.cross_entropy(logits, labels)
    assert {str(kind): number for kind, number in counts.get_comm_counts().items()} == {"c10d_functional.all_reduce": 3}
