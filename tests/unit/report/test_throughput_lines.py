"""Throughput and fit in words."""

from dataclasses import replace

from stagecut.planner.analysis.throughput import Throughput
from stagecut.planner.report.throughput_lines import throughput_lines

ALL = Throughput(
    samples_per_s=0.25,
    tokens_per_s=512.0,
    model_flops_per_s=3e12,
    peak_flops_per_s=8e12,
    num_devices=4,
    price_per_hour=3.6,
    without_price=(),
)


def test_every_known_number_has_a_line():
    """3.6 an hour for 512 x 3600 = 1.8432 million tokens."""
    assert throughput_lines(ALL, num_devices=4) == (
        ("samples per second", "0.25"),
        ("tokens per second", "512"),
        ("model FLOP/s", "3 T, 37.50 % of the peak of 4 devices"),
        ("price", "3.6 per hour, 1.953 per million tokens"),
    )


def test_idle_devices_are_told():
    assert "of the 4 devices used, of 6" in dict(throughput_lines(ALL, num_devices=6))["model FLOP/s"]


def test_what_is_unknown_is_left_out():
    bare = replace(ALL, tokens_per_s=None, model_flops_per_s=None, peak_flops_per_s=None, price_per_hour=None)
    assert throughput_lines(bare, num_devices=4) == (("samples per second", "0.25"),)
    assert throughput_lines(None, num_devices=4) == (("samples per second", "-"),)


def test_a_model_without_tokens_has_a_price_per_samples():
    """3.6 an hour for 900 samples."""
    lines = dict(throughput_lines(replace(ALL, tokens_per_s=None), num_devices=4))
    assert lines["price"] == "3.6 per hour, 4000 per million samples"


def test_missing_prices_are_named():
    lines = dict(throughput_lines(replace(ALL, price_per_hour=None, without_price=("a", "b")), num_devices=4))
    assert lines["price"] == "unknown: no price_per_hour of a, b"
