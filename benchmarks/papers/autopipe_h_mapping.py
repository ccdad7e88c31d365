"""AutoPipe-H's device mapping: the cost of mapping stages as if links were never shared.

    python -m benchmarks.papers.autopipe_h_mapping

takes the options of `benchmarks/harness/driver.py`; `--docs` puts the table into docs/papers/autopipe-h.md. The two
searches differ only in link loads, queues and shared fabrics; the simulator, with all of them, judges both plans.
"""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks.harness.driver import Driver, Jobs, Parts, Request, Tables
from benchmarks.harness.measuring import Tree
from benchmarks.papers.contention_blind import contention_blind
from benchmarks.papers.paper import shortened
from benchmarks.problems.registry import ONLY_1F1B
from benchmarks.problems.specs import Spec
from benchmarks.report.pages import ROOT, markdown, times
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Result
from stagecut.planner.core.units import format_seconds
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.solvers.papers.autopipe_h import solve
from stagecut.planner.solvers.papers.autopipe_mapping.link_loads import link_loads
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search

PAGE = ROOT / "docs" / "papers" / "autopipe-h.md"
SOLVERS = ("autopipe-h",)


def _spec(model: str, cluster: str, global_batch: int, **choices: tuple[int, ...]) -> Spec:
    return Spec(
        model=model, cluster=cluster, global_batch=global_batch, schedules=ONLY_1F1B, solvers=SOLVERS, **choices
    )


SPECS = (
    _spec("gpt2-xl", "hetpipe-16", 64),
    _spec("gpt2-345m", "hetpipe-16", 64),
    _spec("bert-large", "hetpipe-16", 64),
    _spec("vgg16", "hetpipe-16", 128),
    _spec("gpt2-345m", "commodity-32", 128),
    _spec("bert-large", "commodity-32", 512),
    _spec("vgg16", "commodity-32", 256),
    _spec("resnet152", "mixed-server-8", 64),
    _spec("gpt2-345m", "dgx-a100-16", 128),
    _spec("bert-large", "three-generations-64", 256, micro_batches=(4, 8), pipelines=(1, 2)),
)
"""Servers with one PCIe root for all devices, except `dgx-a100-16`, whose devices have a switch."""
QUICK = (_spec("vgg16", "cpu-2", 8, micro_batches=(2,)),)
TIMES = ("model, cluster", "blind: believed", "blind: simulated", "aware: simulated", "blind / aware")
MAPPINGS = ("model, cluster", "blind", "its busiest link", "aware", "its busiest link")


def jobs(specs: Sequence[Spec] = SPECS) -> Jobs:
    """Results by name of the spec."""
    return {spec.name: partial(measure, spec) for spec in specs}


def measure(spec: Spec, request: Request) -> Tree:
    """Both searches on one problem."""
    problem, options = spec.problem(), SolveOptions(time_limit_s=request.time_scale * spec.others_time_limit_s)
    aware, blind = (run(problem, Search(problem, options)) for run in (solve, contention_blind))
    believed = blind.own_objective
    return {
        "aware": _side(problem, aware),
        "blind": {**_side(problem, blind), "believed_s": None if believed is None else believed.value},
    }


def tables(parts: Parts) -> Tables:
    """The table of the page."""
    return {PAGE: {"mapping": table(parts)}}


def table(parts: Parts) -> str:
    """Times, then mappings, of both searches, on every problem for which both found a plan."""
    both = {
        name: part for name, part in shortened(parts).items() if all("objective_s" in side for side in part.values())
    }
    times_rows = [[name, *_times(part["blind"], part["aware"])] for name, part in both.items()]
    mapping_rows = [
        [name, *(cell for side in ("blind", "aware") for cell in (part[side]["mapping"], _busiest(part[side])))]
        for name, part in both.items()
    ]
    return f"{markdown(TIMES, times_rows)}\n\n{markdown(MAPPINGS, mapping_rows, numbers=False)}"


def in_words(plan: Plan) -> str:
    """Stages of each host of the first pipeline: `2x (r=4) on a` for two stages of four replicas each."""
    groups = itertools.groupby(plan.stages, lambda s: (s.devices[0].split("/")[0], s.replicas, s.tensor_parallel))
    runs = []
    for (host, replicas, degree), stages in groups:
        shape = f"r={replicas}" if degree == 1 else f"r={replicas} tp={degree}"
        runs.append(f"{len(list(stages))}x({shape}) on {host}")
    pipelines = plan.share.num_pipelines
    return (f"{pipelines} pipelines: " if pipelines > 1 else "") + ", ".join(runs)


def _side(problem: Problem, result: Result) -> Tree:
    """The plan of one search, and the loads of its links."""
    if result.plan is None:
        return {"status": str(result.status)}
    loads = link_loads(CostModel(problem).plan(result.plan))
    by_link = dict(zip(loads.names, loads.total_s.tolist(), strict=True))
    return {
        "status": str(result.status),
        "objective_s": result.objective_s,
        "mapping": in_words(result.plan),
        "micro_batch": result.plan.micro_batch,
        "link_loads_s": by_link,
        "search_s": round(result.seconds, 3),
    }


def _times(blind: Tree, aware: Tree) -> list[str]:
    return [
        format_seconds(blind["believed_s"]),
        format_seconds(blind["objective_s"]),
        format_seconds(aware["objective_s"]),
        times(blind["objective_s"] / aware["objective_s"], digits=3),
    ]


def _busiest(side: Tree) -> str:
    loads_s: Mapping[str, float] = side["link_loads_s"]
    if not loads_s:
        return "-"
    name = max(loads_s, key=lambda link: loads_s[link])
    return f"{name}, {format_seconds(loads_s[name])}"


DRIVER = Driver(name="autopipe_h_mapping", jobs=jobs(), quick_jobs=jobs(QUICK), tables=tables)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, keep the results and print the tables."""
    DRIVER.main(arguments)


if __name__ == "__main__":
    main()
