"""Tables of plans with equal and unequal micro-batches that were run, and what may be wrong with them."""

from collections.abc import Sequence

from benchmarks.harness.driver import Parts, Tables
from benchmarks.harness.measuring import Tree
from benchmarks.harness.plan_runs import STAGE_TIMES, RunFigures
from benchmarks.report.pages import ROOT, markdown, percent, ratio, times
from stagecut.planner.core.numerics.tolerances import EQUAL_TIMES
from stagecut.planner.core.run_record import MAX_DILATED_ERROR
from stagecut.planner.core.units import format_seconds

PAGE = ROOT / "docs" / "papers" / "umpipe.md"
SIZES = (1, 2, 4, 8, 16, 32)
EXACT = 1e-9
"""Largest difference of gradients in float64."""
EQUAL, UNEQUAL = "equal", "unequal"
STAGE_HEAD = ("stage", "forwards of", "predicted", "real", "backward predicted", "real", "update predicted", "real")
HEAD = (
    *("model, devices, sizes", "samples at a time", "predicted"),
    *("real", "error", "clean steps", "dilated", "error", "gradients differ by"),
)


def tables(parts: Parts) -> Tables:
    """The layers' times, and the plans."""
    plans = {name: part for name, part in parts.items() if "plans" in part}
    made = {
        "measured layers": layers_table({name: part for name, part in parts.items() if name not in plans}),
        "measured plans": markdown(HEAD, [row for name, part in plans.items() for row in _rows(name, part)]),
        "measured stages": markdown(
            STAGE_HEAD, [row for name, part in plans.items() for row in _stage_rows(name, part["plans"])]
        ),
    }
    return {PAGE: made}


def layers_table(parts: Parts) -> str:
    """Milliseconds per sample of all layers together, forwards and backwards."""
    head = ("all layers, ms per sample, in micro-batches of", *map(str, SIZES))

    def cells(part: Tree) -> list[str]:
        return [f"{1e3 * part[str(size)] / size:.1f}" if str(size) in part else "-" for size in SIZES]

    return markdown(head, [[name.removesuffix(", profile"), *cells(part)] for name, part in parts.items()])


def _rows(name: str, part: Tree) -> list[list[str]]:
    """Times of the plans, and how much longer the best one with equal sizes takes."""
    plans = part["plans"]
    if UNEQUAL not in plans:
        return [[f"{name}, equal, none better", *_cells(plans[EQUAL], part["tries"])]]
    rows = [[f"{name}, {kind}", *_cells(found, part["tries"])] for kind, found in plans.items()]
    equal, unequal = (_times_s(plans[kind]) for kind in (EQUAL, UNEQUAL))
    predicted, real, dilated = (times(ratio(one, other), digits=4) for one, other in zip(equal, unequal, strict=True))
    return [*rows, [f"{name}, equal / unequal", "", predicted, real, "", "", dilated, "", ""]]


def _stage_rows(name: str, plans: Tree) -> list[list[str]]:
    """Predicted and measured times of the stages of plans that were trained at full speed."""
    return [
        [f"{name}, {kind}, stage {index}", *_stage_cells(facts, found["real"]["stages"][index])]
        for kind, found in plans.items()
        if found["real"] is not None
        for index, facts in enumerate(found["stages"])
    ]


def _stage_cells(facts: Tree, times_s: Tree) -> list[str]:
    (forward_s, backward_s, update_s) = (
        [format_seconds(times_s[side][name]) for side in ("predicted", "measured")] for name in STAGE_TIMES
    )
    return [str(facts["forward"]), *forward_s, *backward_s, *update_s]


def _cells(found: Tree, tries: Sequence[Tree]) -> list[str]:
    dilated = RunFigures(**found["dilated"])
    return [
        found["sizes"],
        format_seconds(found["predicted_s"]),
        *_real_cells(found["real"], tries),
        format_seconds(dilated.measured_s),
        f"{100 * dilated.error:+.2f} %",
        f"{found['gradient_difference']:.1e}",
    ]


def _real_cells(real: Tree | None, tries: Sequence[Tree]) -> list[str]:
    """Time, error, and number of clean steps; dashes if there are fewer cores than devices."""
    if real is None:
        return ["-"] * 3
    figures = RunFigures(**real)
    note = f", contaminated, try {len(tries)}" if tries[-1]["contaminated"] else ""
    clean = f"{figures.num_clean_steps}{note}"
    return [format_seconds(figures.measured_s), f"{100 * figures.error:+.2f} %", clean]


def _times_s(found: Tree) -> tuple[float, float | None, float]:
    real = found["real"]
    return found["predicted_s"], None if real is None else real["measured_s"], found["dilated"]["measured_s"]


def complaint(parts: Parts) -> str:
    """Unequal sizes predicted to be slower, gradients that differ, dilated times that are not those simulated."""
    found = ((name, fault) for name, part in parts.items() for fault in _faults(part.get("plans", {})))
    return "\n".join(f"{name}: {fault}" for name, fault in found)


def _faults(plans: Tree) -> list[str]:
    faults = []
    if UNEQUAL in plans and plans[UNEQUAL]["predicted_s"] > plans[EQUAL]["predicted_s"] * (1 + EQUAL_TIMES):
        faults.append("unequal sizes are predicted to be slower than equal ones")
    for kind, found in plans.items():
        for difference in (found["gradient_difference"], found["dilated"]["gradient_difference"]):
            if difference is None or difference > EXACT:
                faults.append(f"{kind}: gradients differ from those of a single process by {difference}")
        error = RunFigures(**found["dilated"]).error
        if abs(error) > MAX_DILATED_ERROR:
            faults.append(f"{kind}: dilated mode is {percent(abs(error))} off the simulated time")
    return faults
