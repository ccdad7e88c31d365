"""Operators in profile files."""

import json
from dataclasses import replace

import pytest

from stagecut.models import build_model
from stagecut.planner.core.operators.operators import Port
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.files.profile import profile_of, to_tree

LAYERS = """\
schema: 1
name: m
layers:
- {name: a, params_bytes: 6, saved_bytes: 5, output_bytes: 2, forward_flops: 8}
- {name: b, params_bytes: 6, saved_bytes: 5, output_bytes: 2, forward_flops: 8}
operators:
- layers: [LAYERS]
  graph:
  - name: up
    kind: linear
    inputs: [{tensor: input, dims: [sample, hidden]}]
    outputs: [{name: raised, dims: [sample, width], num_bytes: 3, saved: true}]
    weights: [{name: weight, dims: [width, hidden], num_bytes: 6}]
    splits: [{dim: sample}, {dim: width, size: 4}]
    forward_flops: 8
  - name: sum
    kind: elementwise
    inputs: [{tensor: input, dims: [sample, hidden]}, {tensor: raised, dims: [sample, width]}]
    outputs: [{name: output, dims: [sample, hidden], num_bytes: 2}]
"""


def text(layers="a, 1", **replacements):
    changed = LAYERS.replace("LAYERS", layers)
    for old, new in replacements.get("changed", {}).items():
        assert old in changed
        changed = changed.replace(old, new, 1)
    return changed


def read(source):
    return profile_of(parse_document(source, file="f"))


@pytest.mark.parametrize("name", ["gpt-mini", "bert-mini", "llama-mini", "mixtral-8x7b", "vgg16", "resnet50"])
def test_operators_read_back_equal(name):
    model = build_model(name)
    assert read(format_json(to_tree(model))) == model


def test_layers_with_the_same_operators_share_them():
    """A GPT has four kinds of layers: embedding, attention, feed-forward, head."""
    graphs = to_tree(build_model("gpt2-xl"))["operators"]
    assert [len(graph["layers"]) for graph in graphs] == [1, 48, 48, 1]


def test_layers_are_named_or_counted():
    model = read(text())
    assert model.layers[0].operators == model.layers[1].operators
    assert [each.name for each in model.layers[0].operators] == ["up", "sum"]
    assert model.layers[0].operators[1].inputs[1] == Port(tensor="raised", dims=("sample", "width"))
    assert model.layers[0].operators[1].splits[0].dim == "sample"


def test_input_is_what_no_operator_saves():
    """5 bytes, of which 3 are made."""
    assert read(text()).layers[0].saved_input_bytes == 2


def test_a_profile_without_operators_writes_none():
    model = build_model("gpt-mini")
    bare = replace(model, layers=tuple(replace(layer, operators=()) for layer in model.layers))
    assert "operators" not in json.dumps(to_tree(bare))


@pytest.mark.parametrize(
    ("layers", "changed", "complaint"),
    [
        ("a, c", {}, "7: operators[0].layers[1]: must be the name of a layer or an index from 0 to 1, got 'c'"),
        ("a, 0", {}, "7: operators[0].layers[1]: layer 0 has operators already, first on line 7"),
        (
            "a",
            {"tensor: raised": "tensor: lifted"},
            "18: operators[0].graph[1].inputs[1].tensor: no earlier operator makes 'lifted', accepted: input, raised",
        ),
        (
            "a",
            {"tensor: raised, dims: [sample, width]": "tensor: raised, dims: [sample]"},
            "18: operators[0].graph[1].inputs[1].dims: must be 2 dimensions like the tensor's, got 1",
        ),
        ("a", {"name: sum": "name: up"}, "16: operators[0].graph[1].name: operator 'up' appears twice"),
        (
            "a",
            {"name: output": "name: raised"},
            "19: operators[0].graph[1].outputs[0].name: tensor 'raised' exists already",
        ),
        ("a", {"name: output": "name: result"}, "8: operators[0].graph: no operator makes the tensor 'output'"),
        (
            "a",
            {"dim: width": "dim: wide"},
            "14: operators[0].graph[0].splits[1].dim: no tensor has the dimension 'wide', accepted: ",
        ),
        (
            "a",
            {"dim: width, size: 4": "dim: width"},
            "14: operators[0].graph[0].splits[1]: every dimension but 'sample' must have a size",
        ),
        (
            "a",
            {"dim: width, size: 4": "dim: sample"},
            "7: operators[0]: operator 'up': dimensions of splits must be without repetitions, got 'sample'",
        ),
        (
            "a",
            {"num_bytes: 3, saved": "num_bytes: -3, saved"},
            "12: operators[0].graph[0].outputs[0].num_bytes: must be",
        ),
    ],
)
def test_faults_of_operators_are_told_with_their_place(complaints_of, layers, changed, complaint):
    (found,) = complaints_of(profile_of, text(layers, changed=changed))
    assert found.startswith(complaint)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (
            {"num_bytes: 6}]": "num_bytes: 7}]"},
            "operators add up to 7, but params_bytes + shared_params_bytes of layer 'a' is 6",
        ),
        ({"    forward_flops: 8\n": ""}, "operators add up to 0, but forward_flops of layer 'a' is 8"),
        ({"num_bytes: 3": "num_bytes: 9"}, "operators save 9 bytes, but saved_bytes of layer 'a' is 5"),
        ({"num_bytes: 2}]": "num_bytes: 1}]"}, "operators add up to 1, but output_bytes of layer 'a' is 2"),
    ],
)
def test_operators_must_add_up_to_their_layer(complaints_of, changed, complaint):
    assert complaint in complaints_of(profile_of, text("a", changed=changed))[0]
