"""Tables of trainings and regrets."""

import math
from collections.abc import Mapping
from typing import Any

from benchmarks.convergence.methods import DATA_PARALLEL, DIGITS, TEXT, Comparison, mean
from benchmarks.harness.driver import Parts, Tables
from benchmarks.report.pages import ROOT, markdown, ratio, times

PAGE = ROOT / "docs" / "waves.md"


def tables(parts: Parts) -> Tables:
    """Trainings by task, and regret by setting."""
    found = {f"convergence-{each.title}": trainings(each, parts) for each in (DIGITS, TEXT)}
    return {PAGE: {**found, "regret": regrets(parts)}}


def trainings(comparison: Comparison, parts: Parts) -> str:
    """Times to the target, beside those of data parallelism."""
    prefix = f"{comparison.title}: "
    of_task = {name.removeprefix(prefix): part for name, part in parts.items() if name.startswith(prefix)}
    reference = mean(of_task[DATA_PARALLEL]["seconds"]) if DATA_PARALLEL in of_task else None
    head = (
        "",
        "workers",
        "samples/s",
        "samples to target",
        "s to target",
        "against DP",
        "own lacking",
        "others lacking",
    )
    rows = [[name, *_cells(part, reference)] for name, part in of_task.items()]
    return markdown(head, rows)


def _cells(part: Mapping[str, Any], reference: float | None) -> list[str]:
    seconds, samples = mean(part["seconds"]), mean(part["samples"])
    return [
        part["about"],
        f"{part['samples_per_s']:.3g}",
        "not reached" if samples is None else f"{samples:.0f}",
        "-" if seconds is None else f"{seconds:.1f}",
        times(ratio(reference, seconds)),
        *("{} of {}".format(*part[kind]) for kind in ("local_staleness", "global_staleness")),
    ]


def regrets(parts: Parts) -> str:
    """Average regret R after T minibatches, and R sqrt(T)."""
    of_settings = {name: part for name, part in parts.items() if name.startswith("regret")}
    shown = sorted({count for part in of_settings.values() for count in part["counts"]})[-4:]
    head = ("", "first step", *(f"T = {count}" for count in shown), "slope", "own lacking", "others lacking")
    rows = [[name.removeprefix("regret, "), *_of_setting(part, shown)] for name, part in of_settings.items()]
    return markdown(head, rows)


def _of_setting(part: Mapping[str, Any], shown: list[int]) -> list[str]:
    found = dict(zip(part["counts"], part["regrets"], strict=True))
    cells = [f"{found[count]:.4f} ({found[count] * count**0.5:.1f})" if count in found else "-" for count in shown]
    seen = ["{} of {}".format(*part[kind]) for kind in ("local_staleness", "global_staleness")]
    return [f"{part['rate']:g}", *cells, f"{slope(part):.2f}", *seen]


def slope(part: Mapping[str, Any]) -> float:
    """Exponent of T over the last three doublings; that of 1 / sqrt(T) is -0.5."""
    (first, last), (before, after) = (part[kind][-4::3] for kind in ("counts", "regrets"))
    return math.log(after / before) / math.log(last / first)
