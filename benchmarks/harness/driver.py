"""What every driver does: measure its parts one after another, keep them, print tables, update pages.

    python -m benchmarks.NAME                        measures everything, writes results/NAME.json, prints the tables
    python -m benchmarks.NAME --docs                 also puts tables and pictures into the pages
    python -m benchmarks.NAME --docs --from-results  only that, from the results that are there
    python -m benchmarks.NAME --only TEXT            measures the parts with this in their name, keeps the others
    python -m benchmarks.NAME --time-scale 0.1       a tenth of all time limits
    python -m benchmarks.NAME --renew piper,dapple   these solvers again, in the parts that have them
    python -m benchmarks.NAME --solvers milp,even    these only, and nothing is kept
    python -m benchmarks.NAME --quick                something tiny in place of all parts, and nothing is kept

What is measured is kept part by part, so that a run that was cut off is continued with `--only`.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.measuring import Measure, Measured, Tree, Within, measured
from benchmarks.problems.specs import Spec
from benchmarks.report.pages import IMAGES, put_tables, save_picture
from benchmarks.report.results import RESULTS, Kept, Stamp, check_stamp, keep_part, read_kept
from stagecut.planner.report.images import reproducible
from stagecut.planner.solvers.registry import SOLVERS
from stagecut.planner.solvers.search.options import SolveOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

START_S = 3.0
"""Allowance for starting a process and for what follows the time limit, so that `milp` keeps to the spec's seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """How a driver should measure."""

    time_scale: float = 1.0
    """Multiplies every time limit."""
    solvers: tuple[str, ...] | None = None
    """None: the solvers named by the specs."""
    quick: bool = False
    by: Measure = measured

    @property
    def keeps(self) -> bool:
        """Whether results are kept: only complete parts are, and none of a quick run."""
        return not self.quick and self.solvers is None

    def answers(self, spec: Spec) -> dict[str, Measured]:
        """Every solver's answer to a spec."""
        return {solver: self.answer(spec, solver) for solver in spec.solvers if self.wants(solver)}

    def trees(self, spec: Spec) -> Tree:
        """Every solver's answer to a spec, as it is stored."""
        return {solver: found.answer.tree() for solver, found in self.answers(spec).items()}

    def answer(
        self, spec: Spec, solver: str, options: SolveOptions | None = None, *, within: Within = nullcontext
    ) -> Measured:
        """One solver's answer, within the spec's budget."""
        if options is None:
            limit_s = spec.time_limit_s - START_S if solver == "milp" else spec.others_time_limit_s
            options = SolveOptions(time_limit_s=self.time_scale * limit_s)
        return self.by(spec, solver, options, within)

    def wants(self, solver: str) -> bool:
        """Whether the solver was asked for."""
        return self.solvers is None or solver in self.solvers


Parts = Mapping[str, Tree]
"""What was measured, by name of the part."""
Jobs = Mapping[str, Callable[[Request], Tree]]
"""How to measure, by name of the part."""
Tables = Mapping[Path, Mapping[str, str]]
"""Tables by page and marker."""


def parts_under(parts: Parts, prefix: str) -> dict[str, Tree]:
    """The parts whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): part for name, part in parts.items() if name.startswith(prefix)}


def no_pictures(_: Parts) -> "Mapping[str, Figure]":
    """The pictures of a driver that draws none."""
    return {}


def no_complaint(_: Parts) -> str:
    """The complaint of a driver that checks nothing."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """One kind of benchmark."""

    name: str
    """Name of the driver's module, and of its results."""
    jobs: Jobs
    quick_jobs: Jobs
    tables: Callable[[Parts], Tables]
    """Made from the parts that exist; missing parts have no rows."""
    pictures: "Callable[[Parts], Mapping[str, Figure]]" = no_pictures
    complaint: Callable[[Parts], str] = no_complaint
    """What is wrong with the results; empty if nothing is."""

    def main(self, arguments: Sequence[str] | None = None, *, results: Path = RESULTS) -> None:
        """Run the driver as the command line says; exit with code 1 if something is wrong with the results."""
        chosen = _chosen(arguments)
        kept = read_kept(self.name, self.jobs, folder=results) if chosen.from_results else self.measure(chosen, results)
        for tables in self.tables(kept).values():
            for name, table in tables.items():
                print(f"{name}\n{table}\n")
        if chosen.docs:
            self.render(kept)
        if complaint := self.complaint(kept):
            print(complaint, file=sys.stderr)
            raise SystemExit(1)

    def measure(self, chosen: argparse.Namespace, results: Path = RESULTS) -> Parts:
        """Run all requested jobs, and keep their results as they arrive."""
        if chosen.renew:
            return self.renew(chosen, results)
        request = Request(time_scale=chosen.time_scale, solvers=chosen.solvers, quick=chosen.quick)
        jobs = self.quick_jobs if chosen.quick else self.jobs
        kept = Kept(stamp=Stamp.here(time_scale=chosen.time_scale), parts={})
        if request.keeps and chosen.only:
            check_stamp(self.name, kept.stamp, folder=results)
        for name, job in jobs.items():
            if chosen.only in name:
                print(f"{name} ...", file=sys.stderr, flush=True)
                kept = kept.with_part(name, job(request))
                if request.keeps:
                    keep_part(self.name, name, kept, expected=self.jobs, folder=results)
        return read_kept(self.name, self.jobs, folder=results) if request.keeps else kept.parts

    def renew(self, chosen: argparse.Namespace, results: Path = RESULTS) -> Parts:
        """Measure some solvers again, in parts that list answers by solver; everything else is kept."""
        kept = Kept(stamp=Stamp.here(), parts=read_kept(self.name, self.jobs, folder=results))
        check_stamp(self.name, kept.stamp, folder=results)
        for name, part in kept.parts.items():
            solvers = tuple(solver for solver in chosen.renew if solver in part)
            if solvers and chosen.only in name:
                print(f"{name}: {', '.join(solvers)} ...", file=sys.stderr, flush=True)
                newer = kept.with_part(name, {**part, **self.jobs[name](Request(solvers=solvers))})
                keep_part(self.name, name, newer, expected=self.jobs, folder=results)
        return read_kept(self.name, self.jobs, folder=results)

    def render(self, parts: Parts) -> None:
        """Put tables into pages, and write the pictures."""
        for page, tables in self.tables(parts).items():
            put_tables(page, tables)
        with reproducible():
            for name, figure in self.pictures(parts).items():
                save_picture(IMAGES / f"{name}.svg", figure)


def _chosen(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; pages are written only from complete measurements."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.renew and (chosen.quick or chosen.solvers is not None or chosen.time_scale != 1):
        parser.error("--renew: cannot be combined with --quick, --solvers or --time-scale")
    if chosen.docs and (chosen.quick or chosen.solvers is not None or chosen.time_scale != 1):
        parser.error(
            "--docs: pages show all solvers with their full time limits; leave out --quick, --solvers and --time-scale"
        )
    return chosen


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", action="store_true", help="write tables and pictures into the pages")
    parser.add_argument("--from-results", action="store_true", help="measure nothing; use the stored results")
    parser.add_argument("--only", default="", metavar="TEXT", help="measure only parts whose name contains TEXT")
    parser.add_argument("--time-scale", type=float, default=1.0, metavar="X", help="multiply every time limit by X")
    parser.add_argument(
        "--renew",
        type=_names,
        default=(),
        metavar="NAMES",
        help="measure these solvers again and keep all other results",
    )
    parser.add_argument(
        "--solvers", type=_names, metavar="NAMES", help="run only these solvers; results are not stored"
    )
    parser.add_argument("--quick", action="store_true", help="run something tiny; results are not stored")
    return parser


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in SOLVERS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown)} (solvers: {', '.join(SOLVERS)})")
    return names
