"""Profile files."""

import json

import pytest

from stagecut.planner.core.model import TimeTable
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.files.profile import profile_of, to_tree

HEAD = "schema: 1\nname: m\nlayers:\n"


def read(text):
    return profile_of(parse_document(text, file="f"))


def test_defaults_are_those_of_the_core():
    layer = read(HEAD + "- {name: a, params_bytes: 3}").layers[0]
    assert (layer.kind, layer.params_bytes, layer.forward_flops, layer.times) == ("layer", 3.0, 0.0, ())
    assert read(HEAD + "- {name: a, params_bytes: 3}").precision is Precision.FP16


def test_times_are_sorted_by_device_type_and_size():
    layer = "- {name: a, params_bytes: 0, forward_s: {V: {4: 3, '2': 2}, T: 1}, backward_s: {T: 5, V: {2: 6, 4: 7}}}"
    assert read(HEAD + layer).layers[0].times == (
        TimeTable(device_type="T", samples=(1,), forward_s=(1.0,), backward_s=(5.0,)),
        TimeTable(device_type="V", samples=(2, 4), forward_s=(2.0, 3.0), backward_s=(6.0, 7.0)),
    )


def test_times_of_several_devices_follow_those_of_one():
    """The times are ordered by number of devices."""
    shared = "{tensor_parallel: %d, forward_s: {V: %d}, backward_s: {V: 2}}"
    more = f"tensor_parallel_bytes: 7, tensor_parallel_times: [{shared % (4, 4)}, {shared % (2, 3)}]"
    layer = read(HEAD + f"- {{name: a, params_bytes: 0, forward_s: {{V: 5}}, backward_s: {{V: 2}}, {more}}}").layers[0]
    assert [(table.tensor_parallel, table.forward_s) for table in layer.times] == [
        (1, (5.0,)),
        (2, (3.0,)),
        (4, (4.0,)),
    ]
    assert layer.tensor_parallel_bytes == 7.0


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        (
            "tensor_parallel_times: [{tensor_parallel: 2, forward_s: {V: 1}, backward_s: {V: 1}}]",
            "tensor_parallel_times: belong to a layer that cannot be shared; give tensor_parallel_bytes",
        ),
        (
            "tensor_parallel_bytes: 0, tensor_parallel_times: [{tensor_parallel: 1, forward_s: {}, backward_s: {}}]",
            "tensor_parallel_times[0].tensor_parallel: must be a whole number from 2 to 1000000000, got 1",
        ),
        (
            "tensor_parallel_bytes: 0, "
            "tensor_parallel_times: [{tensor_parallel: 2, forward_s: {V: 1}, backward_s: {}}]",
            "tensor_parallel_times[0].forward_s.V: has no counterpart in backward_s; give both or neither",
        ),
        ("tensor_parallel_bytes: -1", "tensor_parallel_bytes: must be a number from 0 to 1e+30, got -1"),
    ],
)
def test_faults_of_shared_layers_are_told(complaints_of, keys, complaint):
    text = HEAD + f"- {{name: a, params_bytes: 0, {keys}}}\n"
    assert complaints_of(profile_of, text) == [f"4: layers[0].{complaint}"]


def test_number_of_devices_is_stated_once(complaints_of):
    shared = "{tensor_parallel: 2, forward_s: {}, backward_s: {}}"
    text = (
        HEAD + f"- {{name: a, params_bytes: 0, tensor_parallel_bytes: 0, tensor_parallel_times: [{shared}, {shared}]}}"
    )
    place = "4: layers[0].tensor_parallel_times[1].tensor_parallel"
    assert complaints_of(profile_of, text) == [f"{place}: tensor-parallel degree 2 appears twice, first on line 4"]


def test_json_and_yaml_give_the_same_model(tiny_problem):
    assert read(json.dumps(to_tree(tiny_problem.model))) == tiny_problem.model


def test_skip_edges_take_names_or_indices():
    """A layer may be called by a number: text is a name, a number an index."""
    layers = "".join(f"- {{name: '{name}', params_bytes: 0}}\n" for name in ("2", "b", "c"))
    edges = "skip_edges:\n- {from: '2', to: c, bytes: 1}\n- {from: 0, to: 1, bytes: 2}\n"
    assert [(edge.source, edge.target) for edge in read(HEAD + layers + edges).skip_edges] == [(0, 2), (0, 1)]


def test_a_skip_edge_leads_to_one_layer_or_to_several_in_any_order():
    """Layers 1, 2 and 3 use what layer 0 makes; it passes each boundary on the way once."""
    layers = "".join(f"- {{name: {name}, params_bytes: 0}}\n" for name in "abcd")
    edges = "skip_edges:\n- {from: a, to: [d, 1, c], bytes: 1}\n- {from: a, to: [d], bytes: 2}\n"
    model = read(HEAD + layers + edges)
    assert [edge.targets for edge in model.skip_edges] == [(1, 2, 3), (3,)]
    assert model.boundary_bytes().tolist() == [0.0, 3.0, 3.0, 3.0, 0.0]
    assert [edge["to"] for edge in to_tree(model)["skip_edges"]] == [[1, 2, 3], 3]


def test_faults_of_several_users_are_told(complaints_of):
    layers = "".join(f"- {{name: {name}, params_bytes: 0}}\n" for name in "abc")
    edges = (
        "skip_edges:\n"
        "- {from: b, to: [a, c], bytes: 1}\n"
        "- {from: a, to: [c, 2], bytes: 1}\n"
        "- {from: a, to: [z, 1.5], bytes: 1}\n"
        "- {from: a, to: [], bytes: 1}\n"
    )
    found = complaints_of(profile_of, HEAD + layers + edges)
    assert found[0].endswith("skip_edges[0]: must lead forward, got from layer 1 to layer 0")
    assert found[1].endswith("skip_edges[1].to[1]: layer 2 appears twice, first on line 9")
    assert any(
        "skip_edges[2].to[0]: must be the name of a layer or an index from 0 to 2, got 'z'" in line for line in found
    )
    assert any("skip_edges[2].to[1]: must be a whole number" in line and "got 1.5" in line for line in found)
    assert any("skip_edges[3].to: must be" in line and "got an empty list" in line for line in found)
    assert len(found) == 5


def test_every_fault_of_a_file_is_reported_at_once(complaints_of):
    text = (
        "schema: 1\n"
        "name: 345\n"
        "layers:\n"
        "- {name: a, param_bytes: 3}\n"
        "- name: a\n"
        "  params_bytes: -1\n"
        "  output_bytes: '3'\n"
        "  saved_bytes: .nan\n"
        "  working_bytes: true\n"
        "precision: fp61\n"
        "skip_edges:\n"
        "- {from: 1, to: 0, bytes: 1}\n"
        "- {from: z, to: 1, bytes: 1e999}\n"
    )
    number = "must be a number from 0 to 1e+30"
    assert complaints_of(profile_of, text) == [
        "2: name: must be text of 1 to 100 printable characters, got 345 (put it in quotes: '345')",
        "4: layers[0].param_bytes: unknown key, did you mean 'params_bytes'?",
        f"4: layers[0].params_bytes: is missing, {number}",
        "5: layers[1].name: layer name 'a' appears twice, first on line 4",
        f"6: layers[1].params_bytes: {number}, got -1",
        f"7: layers[1].output_bytes: {number}, got '3'",
        f"8: layers[1].saved_bytes: {number}, got .nan",
        f"9: layers[1].working_bytes: {number}, got true",
        "10: precision: must be 'fp32' or 'fp16' or 'bf16', got 'fp61', did you mean 'fp16'?",
        "12: skip_edges[0]: must lead forward, got from layer 1 to layer 0",
        f"13: skip_edges[1].bytes: {number}, got 1e999",
        "13: skip_edges[1].from: must be the name of a layer or an index from 0 to 1, got 'z'",
    ]


@pytest.mark.parametrize(
    ("times", "complaint"),
    [
        ("forward_s: {V: 1}", "4: layers[0].forward_s.V: has no counterpart in backward_s; give both or neither"),
        (
            "forward_s: {V: {1: 1, 2: 2}}, backward_s: {V: 1}",
            "4: layers[0].forward_s.V: micro-batch sizes must be the same in forward_s and backward_s, got 1, 2 and 1",
        ),
        (
            "forward_s: {V: {0: 1}}, backward_s: {V: {0: 1}}",
            "4: layers[0].forward_s.V.0: the key must be a micro-batch size from 1 to 999999999, got '0'",
        ),
        (
            "forward_s: {V: {}}, backward_s: {V: 1}",
            "4: layers[0].forward_s.V: must be a non-empty mapping or a number from 0 to 1e+30, got an empty mapping",
        ),
    ],
)
def test_half_a_table_of_times_is_refused(complaints_of, times, complaint):
    text = HEAD + f"- {{name: a, params_bytes: 0, {times}}}\n"
    assert complaint in complaints_of(profile_of, text)


def test_empty_model_is_refused(complaints_of):
    rule = "layers: must be a non-empty list"
    assert complaints_of(profile_of, "schema: 1\nname: m\nlayers: []\n") == [f"3: {rule}, got an empty list"]


def test_other_kind_of_file_is_recognised(complaints_of):
    assert complaints_of(profile_of, "servers: []\n") == ["1: expected a profile file, got a cluster file"]


def test_other_version_of_the_format_is_refused(complaints_of):
    text = "schema: 2\nname: m\nlayers:\n- {name: a, params_bytes: 0}\n"
    assert complaints_of(profile_of, text) == ["1: schema: must be 1, got 2"]
