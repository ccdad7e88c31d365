"""Workloads of dnn-partitioning."""

import pytest

from stagecut.planner.core.messages.errors import BadInputError


def layers_of(conversion):
    return [(layer.name, layer.table("workload").backward_s[0]) for layer in conversion.profile.layers]


def test_backward_nodes_add_to_the_layer_of_their_colour(read, foreign):
    """node2 takes 2 ms forward and 4 ms backward; it has 9 MB, of which 1 MB is sent on."""
    conversion = read(foreign / "workload.json")
    first = conversion.profile.layers[0]
    assert layers_of(conversion) == [("node1..node2", 0.004), ("node3", 0.006), ("node4", 0.002)]
    assert first.times[0].forward_s == (0.002,)
    assert (first.params_bytes, first.saved_bytes) == (8e6, 1e6)


def test_edges_of_gradients_do_not_count(read, foreign):
    """Node2 hands the same 1 MB to node3 and node4, node3 another 1 MB."""
    assert read(foreign / "workload.json").profile.boundary_bytes().tolist() == [0.0, 1e6, 2e6, 0.0]


def test_outputs_of_several_sizes_are_all_kept(read, foreign, changed):
    """Node2 hands 1 MB to node3 and another 2 MB to node4: 3 of its 9 MB are activations."""

    def change(tree):
        (edge,) = (edge for edge in tree["edges"] if (edge["sourceId"], edge["destId"]) == (2, 4))
        edge["size"] = 2e6

    first = read(changed(foreign / "workload.json", change)).profile.layers[0]
    assert (first.params_bytes, first.saved_bytes) == (6e6, 3e6)


def test_a_gradient_without_colour_joins_a_neighbour(read, foreign, changed):
    """The gradient of node4, 2 ms, reads that of node3 and of node2; the first in the file is of node2."""

    def change(tree):
        del tree["nodes"][7]["colorClass"]

    conversion = read(changed(foreign / "workload.json", change))
    assert layers_of(conversion) == [("node1..node2", 0.006), ("node3", 0.006), ("node4", 0.0)]


def test_an_inference_workload_gets_a_backward(read, foreign, changed):
    def change(tree):
        tree["nodes"] = tree["nodes"][::2]
        tree["edges"] = tree["edges"][::2]

    conversion = read(changed(foreign / "workload.json", change))
    assert layers_of(conversion)[1] == ("node3", 0.006)
    assert "no backward pass" in conversion.notes[1]


def test_costs_become_bytes_at_a_bandwidth(read, foreign, changed):
    """0.5 ms at 2 GB/s are 1 MB."""

    def change(tree):
        for edge in tree["edges"]:
            del edge["size"]

    path = changed(foreign / "workload.json", change)
    with pytest.raises(BadInputError, match="--link-bandwidth"):
        read(path)
    assert read(path, link_bytes_per_s=2e9).profile.boundary_bytes()[1] == pytest.approx(1e6)


def test_weights_of_their_own_belong_to_their_users(read, foreign, changed):
    """A table of 7 MB read by node2 and node4: the first layer owns it, the last one holds a copy."""

    def change(tree):
        tree["nodes"].append({"id": 99, "fpgaLatency": 0, "size": 7e6, "isBackwardNode": False, "colorClass": 99})
        tree["edges"] += [{"sourceId": 99, "destId": user, "cost": 1.0, "size": 7e6} for user in (2, 4)]

    profile = read(changed(foreign / "workload.json", change)).profile
    assert [layer.params_bytes for layer in profile.layers] == [15e6, 4e6, 3e6]
    assert [layer.shared_params_bytes for layer in profile.layers] == [0.0, 0.0, 7e6]
    assert profile.boundary_bytes()[1] == 1e6


def test_all_faults_are_told(read, foreign, changed):
    def change(tree):
        del tree["nodes"][0]["id"]
        tree["nodes"][1]["fpgaLatency"] = "fast"
        tree["nodes"][2]["isBackwardNode"] = 2
        tree["edges"][0]["sourceId"] = 55

    with pytest.raises(BadInputError) as caught:
        read(changed(foreign / "workload.json", change))
    text = str(caught.value)
    for part in ("nodes[0].id: is missing", "nodes[1].fpgaLatency: must", "isBackwardNode: must be", "unknown node 55"):
        assert part in text
