"""How layers, devices and numbers are written."""

import math

import pytest

from planner.core.model import Layer, ModelProfile
from planner.report.labels import bandwidth_label, bytes_label, count_label, device_label, layer_label, percent_label

MODEL = ModelProfile(name="chain", layers=tuple(Layer(name=name) for name in ("embedding", "block", "head")))


@pytest.mark.parametrize(
    ("names", "label"),
    [
        (("a/0",), "a/0"),
        (("a/0", "a/1", "a/2"), "a/0-2"),
        (("a/0", "a/2"), "a/0,2"),
        (("a/2", "a/3", "b/0", "b/1"), "a/2-3, b/0-1"),
        (("rack/7/0", "rack/7/1"), "rack/7/0-1"),
        (("gpu",), "gpu"),
    ],
)
def test_devices_of_a_host_are_drawn_together(names, label):
    assert device_label(names) == label


def test_stage_shows_its_first_and_last_layer():
    assert layer_label(MODEL, 0, 3) == "0-2  embedding .. head"
    assert layer_label(MODEL, 1, 2) == "1  block"


def test_infinite_sizes_are_called_unlimited():
    assert bytes_label(math.inf) == "unlimited"
    assert bandwidth_label(math.inf) == "unlimited"
    assert bandwidth_label(15.75e9) == "15.8 GB/s"


@pytest.mark.parametrize(("count", "label"), [(0, "0"), (12, "12"), (1.558e9, "1.56 G"), (3.2e15, "3.2 P")])
def test_counts_get_a_prefix(count, label):
    assert count_label(count) == label


def test_unknown_share_is_a_dash():
    assert percent_label(None) == "-"
