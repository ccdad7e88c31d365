"""UMPIPE: the searches for a micro-batch size of every process, beside the proven optimum.

    python -m benchmarks.papers.umpipe

with the options of `benchmarks/harness/driver.py`; `--docs` puts the tables into docs/papers/umpipe.md. Seconds are
those of the processor, so that they hold on a machine that is busy with something else too.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import mean
from typing import TypeVar

from benchmarks.harness.driver import Driver, Jobs, Parts, Request, Tables
from benchmarks.harness.measuring import Tree
from benchmarks.problems.flush_lines import ModelFlush, SimulatedFlush
from benchmarks.report.pages import ROOT, markdown, percent, times, whole_seconds
from stagecut.planner.core.units import format_seconds
from stagecut.planner.solvers.papers.umpipe.one_f_one_b import one_f_one_b
from stagecut.planner.solvers.papers.umpipe.search import METHODS, one_after_another, search
from stagecut.planner.sublots.labels import SublotChoice, SublotProblem, solve_sublots
from stagecut.planner.sublots.process_chain import ProcessChain

PAGE = ROOT / "docs" / "papers" / "umpipe.md"
TWOS = (1, 2, 4, 8, 16, 32, 64)
ALL = tuple(range(1, 65))
FLUSHES = (
    *(
        ModelFlush(model=model, cluster=cluster, num_samples=64, sizes=sizes)
        for model in ("gpt1-14", "vgg16")
        for cluster, sizes in (("commodity-32", TWOS), ("hetpipe-16", TWOS), ("mixed-server-8", ALL))
    ),
    *(
        SimulatedFlush(num_stages=stages, num_samples=128, sizes=(*TWOS, 128), saturating=saturating, seed=stages)
        for stages in (4, 8, 16)
        for saturating in (False, True)
    ),
)
QUICK = (SimulatedFlush(num_stages=3, num_samples=16, sizes=(1, 2, 4, 8, 16), saturating=True, seed=0),)
REPEATED_S, MOST_RUNS = 1.0, 5
"""Runs are repeated up to this time and number: a first one also pays for what Python sets up."""
EXACT, MIXED = "exact", "1f1b"
DUAL, MATRIX = "dual-genetic", "matrix-genetic"
HEADINGS = {
    "equal-sizes": "equal sizes",
    "local-greedy": "local greedy",
    "global-greedy": "global greedy",
    "genetic": "one chromosome",
    DUAL: "DGAP",
    MATRIX: "TiDGAP",
}
Answer = TypeVar("Answer")


def jobs(flushes: Sequence[ModelFlush | SimulatedFlush]) -> Jobs:
    """Searches by name of the problem."""
    return {each.name: partial(measure, each) for each in flushes}


def measure(flush: ModelFlush | SimulatedFlush, request: Request) -> Tree:
    """Every search on one problem, the optimum, and 1F1B."""
    lines = flush.lines()
    problem = one_after_another(*lines)
    exact, exact_s = timed(partial(proven, lines))
    schedule_s, _ = one_f_one_b(*lines)
    part: Tree = {
        EXACT: {
            "makespan_s": sum(each.makespan_s for each in exact),
            "bound_s": sum(each.bound_s for each in exact),
            "seconds": exact_s,
            "sizes": [each.sizes[0] for each in exact],
        },
        MIXED: {"makespan_s": schedule_s},
    }
    for method in METHODS:
        found, seconds = timed(partial(search, problem, method))
        part[method] = {
            "makespan_s": found.makespan_s,
            "seconds": seconds,
            "evaluations": found.num_evaluations,
            "sizes": found.sizes,
        }
    return part


def proven(lines: Sequence[ProcessChain]) -> list[SublotChoice]:
    """The optimum of each line: under a flush their times add up."""
    return [solve_sublots(SublotProblem.apart(line)) for line in lines]


def timed(work: Callable[[], Answer]) -> tuple[Answer, float]:
    """An answer, and the processor's seconds: the least of up to five runs where they are short."""
    seconds: list[float] = []
    while not seconds or (sum(seconds) < REPEATED_S and len(seconds) < MOST_RUNS):
        started = time.process_time()
        answer = work()
        seconds.append(time.process_time() - started)
    return answer, min(seconds)


def tables(parts: Parts) -> Tables:
    """What the page shows."""
    return {
        PAGE: {"figures": figures(parts), "times": times_table(parts), "seconds": seconds_table(parts)},
    }


def figures(parts: Parts) -> str:
    """Distances from the optimum over all problems, and the speed-up."""
    lines = []
    for method in (*METHODS, MIXED):
        ratios = [over(part, method) for part in parts.values()]
        lines.append([HEADINGS.get(method, "1F1B"), *(percent(each(ratios) - 1) for each in (min, mean, max))])
    ups = [speed_up(part) for part in parts.values()]
    table = markdown(("over the optimum", "least", "mean", "most"), lines)
    return (
        f"{table}\n\nTiDGAP is {times(min(ups), digits=0)} to {times(max(ups), digits=0)} as fast as DGAP, "
        f"{times(total(parts, DUAL) / total(parts, MATRIX), digits=0)} over all problems together."
    )


def times_table(parts: Parts) -> str:
    """The optimum, and every search over it."""
    head = ("problem", "optimum", *HEADINGS.values(), "1F1B")
    rows = [
        [
            name,
            format_seconds(part[EXACT]["makespan_s"]),
            *(f"{over(part, method):.4f}" for method in (*HEADINGS, MIXED)),
        ]
        for name, part in parts.items()
    ]
    return markdown(head, rows)


def seconds_table(parts: Parts) -> str:
    """What the searches took."""
    genetic = ("genetic", DUAL, MATRIX)
    head = (
        "problem",
        "exact, proven",
        "global greedy",
        *(HEADINGS[each] for each in genetic),
        "DGAP / TiDGAP",
        "timed",
    )
    rows = [
        [
            name,
            *(whole_seconds(part[each]["seconds"]) for each in (EXACT, "global-greedy", *genetic)),
            times(speed_up(part), digits=0),
            f"{part[MATRIX]['evaluations']:,}",
        ]
        for name, part in parts.items()
    ]
    return markdown(head, rows)


def over(part: Tree, method: str) -> float:
    """Time over the optimum."""
    ratio: float = part[method]["makespan_s"] / part[EXACT]["makespan_s"]
    return ratio


def speed_up(part: Tree) -> float:
    """Seconds of DGAP over those of TiDGAP."""
    ratio: float = part[DUAL]["seconds"] / part[MATRIX]["seconds"]
    return ratio


def total(parts: Parts, method: str) -> float:
    """Seconds of a search on all problems."""
    return sum(part[method]["seconds"] for part in parts.values())


def complaint(parts: Parts) -> str:
    """Searches below the bound, optima that are not proven, and answers of DGAP and TiDGAP that differ."""
    return "\n".join(f"{name}: {fault}" for name, part in parts.items() for fault in faults(part))


def faults(part: Mapping[str, Tree]) -> list[str]:
    """What is wrong with the answers to one problem."""
    bound_s = part[EXACT]["bound_s"]
    found = [f"{method} is below the bound" for method in METHODS if part[method]["makespan_s"] < bound_s]
    if bound_s < part[EXACT]["makespan_s"] * (1 - 1e-9):
        found.append("the optimum is not proven")
    if part[DUAL]["sizes"] != part[MATRIX]["sizes"]:
        found.append("DGAP and TiDGAP differ")
    return found


DRIVER = Driver(name="umpipe", jobs=jobs(FLUSHES), quick_jobs=jobs(QUICK), tables=tables, complaint=complaint)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, keep the results and print the tables."""
    DRIVER.main(arguments)


if __name__ == "__main__":
    main()
