"""How plan files say in which way operators are divided."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import Layer
from stagecut.planner.core.operators.operators import Operator, Tensor
from stagecut.planner.core.operators.strategy import (
    PARTIAL_SUMS,
    WHOLE_LOOP,
    LayerStrategy,
    StageSharding,
    Strategy,
    WeightStorage,
)
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.files.plan_file import plan_file_of, to_tree
from stagecut.planner.io.files.sharding_entry import ShardingEntry, sharding_of, sharding_tree


def layer(name, *operators):
    made = (Tensor(name="output", dims=("sample",), num_bytes=1.0),)
    return Layer(
        name=name, operators=tuple(Operator(name=own, kind="any", inputs=(), outputs=made) for own in operators)
    )


LAYERS = (
    layer("embedding", "look up"),
    layer("attention-0", "norm", "qkv"),
    layer("feed-forward-0", "norm", "up", "down"),
    layer("attention-1", "norm", "qkv"),
    layer("opaque"),
)
NUM_OPERATORS = (1, 2, 3, 2, 1)


@st.composite
def shardings(draw):
    mesh = draw(st.lists(st.integers(1, 4), max_size=3).map(tuple))
    words = st.sampled_from((WHOLE_LOOP, PARTIAL_SUMS, "sample", "token", "key token"))
    strategy = st.builds(Strategy, splits=st.tuples(*[words] * len(mesh)), storage=st.sampled_from(WeightStorage))
    layers = (st.tuples(*[strategy] * number) for number in NUM_OPERATORS)
    return StageSharding(mesh=mesh, layers=tuple(LayerStrategy(operators=draw(own)) for own in layers))


@given(shardings())
def test_a_sharding_reads_back_equal(sharding):
    text = json.dumps(sharding_tree(sharding, LAYERS, start=7))
    entry = ShardingEntry.model_validate(json.loads(text))
    assert sharding_of(entry, LAYERS, start=7) == sharding


def test_layers_divided_alike_are_written_once():
    norm, qkv = Strategy(splits=("sample", "token")), Strategy(splits=("sample", "head"), storage=WeightStorage.WEIGHTS)
    opaque, up = Strategy(splits=("sample", WHOLE_LOOP)), Strategy(splits=("sample", PARTIAL_SUMS))
    alike = LayerStrategy(operators=(norm, qkv))
    layers = (LayerStrategy(operators=(opaque,)), alike, LayerStrategy(operators=(norm, up, up)), alike)
    tree = sharding_tree(StageSharding(mesh=(2, 4), layers=layers), LAYERS[:4], start=0)
    assert tree == {
        "mesh": [2, 4],
        "layers": [
            {"layers": [0], "operators": {"look up": ["sample", "whole"]}},
            {
                "layers": [1, 3],
                "operators": {"norm": ["sample", "token"], "qkv": ["sample", "head"]},
                "storage": {"qkv": "weights"},
            },
            {
                "layers": [2],
                "operators": {"norm": ["sample", "token"], "up": ["sample", "partial"], "down": ["sample", "partial"]},
            },
        ],
    }


@pytest.fixture
def tree(tiny_plan_file):
    """The tiny plan with layers 0 to 3, which have no operators, on two devices that divide 4 samples."""
    tree = json.loads(format_json(to_tree(tiny_plan_file)))
    stage = tree["plan"]["pipelines"][0]["stages"][0]
    stage |= {"replicas": 1, "tensor_parallel": 2}
    alike = {"layers": [0, 1, 3], "operators": {"layer": ["sample"]}, "storage": {"layer": "weights"}}
    whole = {"layers": [2], "operators": {"layer": ["whole"]}}
    stage["sharding"] = {"mesh": [2], "layers": [alike, whole]}
    return tree


def read(tree):
    return plan_file_of(parse_document(format_json(tree), file="f"))


def test_a_sharded_plan_reads_back_equal(tree):
    plan_file = read(tree)
    sharding = plan_file.plan.stages[0].sharding
    assert [own.operators[0].splits for own in sharding.layers] == [
        ("sample",),
        ("sample",),
        (WHOLE_LOOP,),
        ("sample",),
    ]
    assert read(to_tree(plan_file)) == plan_file
    assert to_tree(plan_file)["plan"]["pipelines"][0]["stages"][0]["sharding"]["mesh"] == [2]


@pytest.mark.parametrize(
    ("steps", "value", "complaint"),
    [
        (("mesh",), [4], "sharding.mesh: must be a grid of tensor_parallel = 2 devices, got 4"),
        (("mesh",), [2, 1], "layers[0].operators.layer: layer 'embedding': operator 'layer': must be one per axis"),
        (("layers", 1, "layers"), [4], "layers[1].layers[0]: must be a layer of the stage, from 0 to 3, got 4"),
        (("layers", 1, "layers"), [1], "layers[1].layers[0]: states layer 1 again"),
        (("layers", 0, "layers"), [1], "sharding.layers: must state every layer of the stage, layers missing: 0, 3"),
        (("layers", 0, "operators"), {"qkv": ["sample"]}, "layer 'embedding': there is no operator 'qkv'"),
        (("layers", 0, "operators"), {}, "layer 'embedding': operator 'layer' is missing"),
        (("layers", 1, "operators", "layer", 0), "head", "operator 'layer' has no dimension 'head' to be divided"),
        (("layers", 1, "storage"), {"layer": "weights"}, "operator 'layer' cannot store parts of its weights"),
        (("layers", 1, "storage"), {"layer": "fsdp"}, "must be 'replicated' or 'optimizer' or"),
        (("layers", 1, "storage"), {"norm": "weights"}, "there is no operator 'norm', accepted: layer"),
    ],
)
def test_what_does_not_fit_the_stage_is_refused_with_its_place(tree, steps, value, complaint):
    changed = copy.deepcopy(tree)
    node = changed["plan"]["pipelines"][0]["stages"][0]["sharding"]
    for step in steps[:-1]:
        node = node[step]
    node[steps[-1]] = value
    with pytest.raises(BadInputError) as caught:
        read(changed)
    text = "\n".join(caught.value.complaints)
    assert complaint in text
    assert "plan.pipelines[0].stages[0].sharding" in text


def test_samples_that_the_devices_do_not_divide_are_refused(tree):
    stages = tree["plan"]["pipelines"][0]["stages"]
    stages[0] |= {"tensor_parallel": 3, "devices": ["fast/0", "fast/1", "slow/0"]}
    stages[0]["sharding"]["mesh"] = [3]
    with pytest.raises(BadInputError, match="3 devices do not divide the 4 samples of a replica"):
        read(tree)
