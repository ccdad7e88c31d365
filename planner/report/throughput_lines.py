"""Throughput, utilisation and price of a plan, line by line."""

from stagecut.planner.analysis.throughput import Throughput
from stagecut.planner.report.labels import UNKNOWN, count_label, percent_label


def throughput_lines(throughput: Throughput | None, *, num_devices: int) -> tuple[tuple[str, str], ...]:
    """Names and values; lines that the model or the cluster says nothing about are left out.

    `num_devices` are those of the cluster, some of which the plan may leave idle.
    """
    if throughput is None:
        return (("samples per second", UNKNOWN),)
    lines = [("samples per second", f"{throughput.samples_per_s:.4g}")]
    if throughput.tokens_per_s is not None:
        lines.append(("tokens per second", count_label(throughput.tokens_per_s)))
    if throughput.model_flops_per_s is not None:
        own = throughput.num_devices
        devices = f"{own} devices" if own == num_devices else f"the {own} devices used, of {num_devices}"
        share = f", {percent_label(throughput.model_flops_utilisation)} of the peak of {devices}"
        known = throughput.peak_flops_per_s is not None
        lines.append(("model FLOP/s", f"{count_label(throughput.model_flops_per_s)}{share if known else ''}"))
    if throughput.price_per_hour is not None or throughput.without_price:
        lines.append(("price", _price_label(throughput)))
    return tuple(lines)


def _price_label(throughput: Throughput) -> str:
    if throughput.without_price:
        return f"unknown: no price_per_hour of {', '.join(throughput.without_price)}"
    per_tokens, per_samples = throughput.price_per_million_tokens, throughput.price_per_million_samples
    million = f"{per_samples:.4g} per million samples" if per_tokens is None else f"{per_tokens:.4g} per million tokens"
    return f"{throughput.price_per_hour:.4g} per hour, {million}"
