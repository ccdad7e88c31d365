"""Piper's graphs."""

import pytest

from stagecut.planner.core.messages.errors import BadInputError


def test_forward_is_what_recomputation_adds(read, foreign):
    """A block takes 12 ms, 16 ms with recomputation: 4 ms forward, 8 ms backward; half of that on two devices."""
    block = next(layer for layer in read(foreign / "piper.json").profile.layers if layer.name == "Block-4")
    assert block.table("piper").forward_s == pytest.approx((0.004,))
    assert block.table("piper").backward_s == pytest.approx((0.008,))
    assert block.table("piper", 2).backward_s == pytest.approx((0.004,))
    assert (block.params_bytes, block.saved_bytes, block.tensor_parallel_bytes) == (8e6, 9000.0, 0.0)


def test_without_recomputation_a_third_is_the_forward(read, foreign, changed):
    def change(tree):
        for node in tree["nodes"]:
            node["TMPCs"] = {"1": node["TMPCs"]["1"][:1]}

    profile = read(changed(foreign / "piper.json", change)).profile
    assert profile.layers[-1].times[0].forward_s == pytest.approx((0.002,))
    assert all(layer.tensor_parallel_bytes is None for layer in profile.layers)


def test_mask_is_a_skip_edge_up_to_its_last_user(read, foreign):
    """Blocks hand on 2000 bytes; the mask's 500 go beside them from the first block to the last one."""
    profile = read(foreign / "piper.json").profile
    assert [layer.name for layer in profile.layers][:2] == ["tensor-0..Embedding-1", "tensor-2..Block-3"]
    assert profile.boundary_bytes().tolist() == [0.0, 2000.0, 2500.0, 2500.0, 2000.0, 0.0]


def test_bytes_are_divided_by_the_micro_batch_and_times_are_not(read, foreign):
    layer = read(foreign / "piper.json", micro_batch=4).profile.layers[-1]
    assert (layer.saved_bytes, layer.times[0].samples) == (750.0, (4,))
    assert layer.times[0].forward_s == pytest.approx((0.002,))


def test_seconds_that_look_like_milliseconds_are_mentioned(read, foreign, changed):
    def change(tree):
        for node in tree["nodes"]:
            for found in node["TMPCs"].values():
                for configuration in found:
                    configuration["timePerSample"] *= 1000

    assert "use --time-unit ms" in read(changed(foreign / "piper.json", change)).notes[-1]


def test_all_faults_are_told_with_their_lines(read, foreign, changed):
    """Line 5 is where the list of nodes begins, indented by one blank a level."""

    def change(tree):
        del tree["nodes"][0]["TMPCs"]["1"][0]["timePerSample"]
        tree["nodes"][1]["TMPCs"]["1"][0]["parameterSize"] = -1
        tree["nodes"][2]["TMPCs"]["1"] = []
        tree["nodes"][3]["id"] = 4
        tree["edges"][0]["destId"] = 77
        del tree["edges"][1]["communicationCost"]

    with pytest.raises(BadInputError) as caught:
        read(changed(foreign / "piper.json", change))
    text = str(caught.value)
    for part in (
        "nodes[0].TMPCs.1[0].timePerSample: is missing, must be a number",
        "nodes[1].TMPCs.1[0].parameterSize: must be a number from 0 to 1e+30, got -1",
        "nodes[2].TMPCs.1: must be a non-empty list",
        "nodes[4].id: 4 appears twice",
        "edges[0].destId: unknown node 77",
        "edges[1].communicationCost: is missing",
    ):
        assert part in text
    assert all("piper.json:" in line for line in caught.value.complaints)


@pytest.mark.parametrize("left", [("2",), ()])
def test_times_of_one_device_are_needed(read, foreign, changed, left):
    """Every node needs them: times of two devices, or none at all, are not enough."""

    def change(tree):
        node = tree["nodes"][3]
        node["TMPCs"] = dict.fromkeys(left, node["TMPCs"]["1"])

    with pytest.raises(BadInputError, match=r"nodes\[3\].TMPCs.1: is missing: times for a single device"):
        read(changed(foreign / "piper.json", change))
