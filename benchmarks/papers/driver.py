"""The papers' planners beside the figures stated in the papers; options: `benchmarks/harness/driver.py`.

Every paper has a file of its own, with its problems, its headlines, and a word on what is comparable.
"""

from dataclasses import replace
from functools import partial

from benchmarks.harness import comparison
from benchmarks.harness.driver import Driver, Jobs, Parts, Request, Tables, parts_under
from benchmarks.harness.measuring import Tree, answers_of
from benchmarks.papers import alpa, autopipe_h, dapple, hetpipe, piper, startup
from benchmarks.papers.paper import Found, Paper
from benchmarks.problems.registry import SMOKE
from benchmarks.problems.specs import Spec
from benchmarks.report.pages import BENCHMARKS_PAGE

PAPERS = (autopipe_h.PAPER, dapple.PAPER, piper.PAPER, alpa.PAPER, hetpipe.PAPER)


def jobs(papers: tuple[Paper, ...]) -> Jobs:
    """Jobs by name of the paper and of the spec."""
    return {f"{paper.key}: {spec.name}": partial(measure, spec) for paper in papers for spec in paper.specs}


def measure(spec: Spec, request: Request) -> Tree:
    """Every solver's answer to one spec."""
    return request.trees(spec)


def tables(parts: Parts) -> Tables:
    """The text for every paper, and the start-up times of AutoPipe's plans."""
    texts = {f"paper {paper.key}": paper.text(found_of(paper, parts)) for paper in PAPERS}
    verdict = comparison.verdict({name: answers_of(part) for name, part in _compared(parts).items()})
    return {BENCHMARKS_PAGE: {"papers verdict": verdict, **texts, **startup.tables(parts)}}


def complaint(parts: Parts) -> str:
    """What the quality benchmark complains about: where `milp` is worse, or a bound is wrong."""
    return comparison.complaint(_compared(parts))


def found_of(paper: Paper, parts: Parts) -> Found:
    """The answers to the specs of one paper."""
    return {name: answers_of(part) for name, part in parts_under(parts, f"{paper.key}: ").items()}


def _compared(parts: Parts) -> Parts:
    """The parts that hold answers of several solvers."""
    return {name: part for name, part in parts.items() if not name.startswith(startup.PART)}


QUICK = tuple(replace(spec, solvers=dapple.SOLVERS) for spec in SMOKE)
DRIVER = Driver(
    name="papers",
    jobs={**jobs(PAPERS), **startup.jobs()},
    quick_jobs={**jobs((replace(dapple.PAPER, specs=QUICK),)), **startup.jobs(QUICK)},
    tables=tables,
    complaint=complaint,
)
