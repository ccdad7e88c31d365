"""When sizes of their own pay: the gain of unequal micro-batches over the share of setups in the work.

    python -m benchmarks.sublots

with the options of `benchmarks/harness/driver.py`; `--docs` puts table and picture into docs/sublots.md. Random
pipelines are solved exactly: with one size for all processes, with a size for each and backwards that are unions of
forwards, and with a size for each in both directions.
"""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness.driver import Driver, Jobs, Parts, Request, Tables
from benchmarks.harness.measuring import Tree
from benchmarks.report.pages import ROOT, markdown
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.sublot_sizes import powers_of_two
from stagecut.planner.sublots.labels import SublotProblem, solve_sublots
from stagecut.planner.sublots.process_chain import Process, ProcessChain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = ROOT / "docs" / "sublots.md"
NUM_SAMPLES, NUM_STAGES = 64, 8
NUM_DRAWS = 12
"""Pipelines of each kind and worth."""
WORTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Samples that take as long as a setup, in the middle of the draws."""
KINDS = {
    "alike": "setups, worth the same number of samples everywhere",
    "unlike": "setups, worth 0.1 to 10 times that",
    "saturating": "no setups, but no sublot takes less than so many samples",
}
COLOURS = dict(zip(KINDS, ("#0072B2", "#D55E00", "#009E73"), strict=True))
"""Blue, vermilion and bluish green of Okabe and Ito (jfly.uni-koeln.de/color)."""
MARKERS = dict(zip(KINDS, "osv", strict=True))
BANDS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
"""Limits of the shares of setups that the table puts together."""


def jobs(*, num_draws: int = NUM_DRAWS, num_samples: int = NUM_SAMPLES, num_stages: int = NUM_STAGES) -> Jobs:
    """One part for each kind of pipeline and worth of its setups."""
    size = {"num_draws": num_draws, "num_samples": num_samples, "num_stages": num_stages}
    return {f"{kind}, {worth:g}": partial(measure, kind, worth, **size) for kind in KINDS for worth in WORTHS}


def measure(kind: str, worth: float, _: Request, *, num_draws: int, num_samples: int, num_stages: int) -> Tree:
    """Makespans of the pipelines drawn."""
    draws = np.random.default_rng(0)
    return {"pipelines": [compared(*pipeline(kind, worth, draws, num_samples, num_stages)) for _ in range(num_draws)]}


def pipeline(
    kind: str, worth: float, draws: np.random.Generator, num_samples: int, num_stages: int
) -> tuple[ProcessChain, ProcessChain, float]:
    """Forwards, backwards seen backwards in time, and the seconds of their work without setups.

    Stages take 0.5 to 1.5 s per sample, twice that in their backward; transfers take 0.05 to 1 s.
    """
    stages = np.arange(2 * num_stages - 1) % 2 == 0
    per_sample_s = np.where(stages, draws.uniform(0.5, 1.5, len(stages)), draws.uniform(0.05, 1.0, len(stages)))
    spread = draws.uniform(-0.25, 0.25) if kind == "alike" else draws.uniform(-1.0, 1.0, len(stages))
    worths = worth * 10 ** np.broadcast_to(spread, len(stages))
    samples = np.arange(num_samples + 1)
    grown = np.maximum(worths[:, None], samples) if kind == "saturating" else worths[:, None] + samples

    def line(factors: Floats, *, backwards: bool) -> ProcessChain:
        tables_s = factors[:, None] * grown
        sizes = powers_of_two(num_samples)
        processes = (Process(name=str(index), seconds=table, sizes=sizes) for index, table in enumerate(tables_s))
        return ProcessChain(processes=tuple(processes), partial_first=backwards)

    both = per_sample_s, per_sample_s * np.where(stages, 2.0, 1.0)
    return line(both[0], backwards=False), line(both[1], backwards=True), float(num_samples * np.sum(both))


def compared(forward: ProcessChain, backward: ProcessChain, plain_s: float) -> Tree:
    """Makespans with one size, with a size for each process, and with that apart in both directions."""
    coupled = SublotProblem.coupled(forward, backward, range(0, len(forward.processes), 2))
    sizes = powers_of_two(forward.num_samples)
    equal = {size: tuple((size,) * len(line.processes) for line in coupled.lines) for size in sizes}
    equal_s, size = min((coupled.value_s(equal[size]), size) for size in sizes)
    work_s = sum(
        float(process.seconds[np.diff(line.cuts(size))].sum()) for line in coupled.lines for process in line.processes
    )
    best, *apart = (solve_sublots(each) for each in (coupled, *map(SublotProblem.apart, coupled.lines)))
    return {
        "share": 1 - plain_s / work_s,
        "equal_s": equal_s,
        "coupled_s": best.makespan_s,
        "bound_s": best.bound_s,
        "apart_s": sum(each.makespan_s for each in apart),
    }


def points(parts: Parts) -> dict[str, list[Mapping[str, float]]]:
    """All pipelines measured, by kind."""
    return {
        kind: [point for name, part in parts.items() if name.startswith(f"{kind},") for point in part["pipelines"]]
        for kind in KINDS
    }


def tables(parts: Parts) -> Tables:
    """Median and largest gain of each kind, and what coupling costs, by share of the setups."""
    rows = []
    for low, high in itertools.pairwise(BANDS):
        inside = {
            kind: [each for each in of_kind if low <= each["share"] < high] for kind, of_kind in points(parts).items()
        }
        costs = [each["coupled_s"] / each["apart_s"] - 1 for of_kind in inside.values() for each in of_kind]
        cells = [_middle_and_most([gain(each) for each in of_kind]) for of_kind in inside.values()]
        rows.append([f"{100 * low:.0f} to {100 * high:.0f} %", *cells, _middle_and_most(costs)])
    return {PAGE: {"gains": markdown(["share of setups", *KINDS, "coupling costs"], rows)}}


def gain(point: Mapping[str, float]) -> float:
    """Part by which the best equal sizes take longer than the best coupled ones."""
    return point["equal_s"] / point["coupled_s"] - 1


def _middle_and_most(shares: Sequence[float]) -> str:
    """Median and maximum in percent, and how many there are."""
    if not shares:
        return "-"
    return f"{100 * statistics.median(shares):.1f} / {100 * max(shares):.1f} ({len(shares)})"


def pictures(parts: Parts) -> "Mapping[str, Figure]":
    """Gain over share, one mark per pipeline."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(axis="y", color="#EEEEEE")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for kind, of_kind in points(parts).items():
        shares, gains = [100 * each["share"] for each in of_kind], [100 * gain(each) for each in of_kind]
        axes.scatter(
            shares, gains, s=18, marker=MARKERS[kind], color=COLOURS[kind], alpha=0.6, label=f"{kind}: {KINDS[kind]}"
        )
    axes.set_xlabel("share of setups in the work of the best equal sizes, %")
    axes.set_ylabel("gain of the best unequal sizes, %")
    axes.set_ylim(bottom=-0.5)
    axes.legend(frameon=False, fontsize="small")
    return {"sublots": figure}


def complaint(parts: Parts) -> str:
    """Pipelines whose sizes are not proven optimal."""
    of_all = [each for of_kind in points(parts).values() for each in of_kind]
    open_ones = sum(each["bound_s"] < each["coupled_s"] * (1 - 1e-9) for each in of_all)
    return f"{open_ones} of {len(of_all)} pipelines are not solved to the optimum" if open_ones else ""


DRIVER = Driver(
    name="sublots",
    jobs=jobs(),
    quick_jobs=jobs(num_draws=1, num_samples=4, num_stages=2),
    tables=tables,
    pictures=pictures,
    complaint=complaint,
)

if __name__ == "__main__":
    DRIVER.main()
