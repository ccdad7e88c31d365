"""AutoDDL: the best sharding of a model beside the schemes of experts, and coordinate descent beside the optimum.

    python -m benchmarks.papers.autoddl

with the options of `benchmarks/harness/driver.py`; `--docs` puts the tables into docs/papers/autoddl.md. Seconds are
those of the processor, so that they hold on a machine that is busy with something else too.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks.harness.driver import Driver, Jobs, Parts, Request, Tables
from benchmarks.harness.measuring import Tree
from benchmarks.problems.sharded_models import ShardedModel
from benchmarks.report.pages import ROOT, markdown, percent, whole_seconds
from stagecut.planner.choice_graphs.solving.solve import solve
from stagecut.planner.core.operators.strategy import WeightStorage
from stagecut.planner.core.units import format_seconds
from stagecut.planner.sharding_search.case import ShardingCase
from stagecut.planner.sharding_search.coordinate_descent import coordinate_descent
from stagecut.planner.sharding_search.options import Allowed, all_strategies
from stagecut.planner.sharding_search.scheme_result import Scheme
from stagecut.planner.sharding_search.scheme_search import expert_schemes, scheme_of
from stagecut.planner.sharding_search.sharding_costs import least_sent_bytes
from stagecut.planner.sharding_search.sharding_graph import sharding_graph
from stagecut.planner.solvers.search.options import SolveOptions

PAGE = ROOT / "docs" / "papers" / "autoddl.md"
MODELS = (("gpt2-345m", 4, "adamw"), ("gpt2-1.3b", 2, "adamw"), ("vgg16", 32, "sgd"))
"""Name, samples per device, optimizer."""
HOSTS = ((16, 1), (64, 1), (2, 8), (8, 8))
PROBLEMS = tuple(
    ShardedModel(model=model, num_hosts=hosts, per_host=per_host, samples_per_device=samples, optimizer=optimizer)
    for model, samples, optimizer in MODELS
    for hosts, per_host in HOSTS
)
QUICK = (ShardedModel(model="vgg16-cifar", num_hosts=2, per_host=2, samples_per_device=32, optimizer="sgd"),)
LIMIT_S = 60.0
WHOLE, STORED = "weights whole", "weights in parts"
"""Search spaces: weights replicated where the loop does not divide them, or stored in parts too (ZeRO, FSDP)."""
EXPERTS = {
    WHOLE: ("data parallel", "one weird trick", "tensor parallel", "Megatron", "2-D tensor parallel"),
    STORED: ("ZeRO-1", "FSDP", "Megatron, ZeRO-1"),
}
STATED = {"gpt2": ("31.1 %", "10 %"), "vgg16": ("17.7 %", "71.5 %")}
"""What the abstract says: up to so much less time on hosts of one GPU, and of several."""
NAMES = {"gpt2": "Transformer", "vgg16": "VGG"}


def jobs(problems: Sequence[ShardedModel]) -> Jobs:
    """Measurements by name of the problem."""
    return {each.name: partial(measure, each) for each in problems}


def measure(problem: ShardedModel, request: Request) -> Tree:
    """Schemes of experts, the optimum and coordinate descent in both spaces."""
    cases = problem.cases()
    best: dict[str, Scheme] = {}
    for scheme in (each for case in cases for each in expert_schemes(case)):
        known = best.get(scheme.name)
        if known is None or (not scheme.fits, scheme.costs.iteration_s) < (not known.fits, known.costs.iteration_s):
            best[scheme.name] = scheme
    return {
        "least_sent_bytes": least_sent_bytes(cases[0]),
        "experts": {name: scheme_tree(scheme) for name, scheme in best.items()},
        **{space: searched(cases, space, request) for space in (WHOLE, STORED)},
    }


def searched(cases: Sequence[ShardingCase], space: str, request: Request) -> Tree:
    """The best of all meshes: proven, and by coordinate descent, with the processor's seconds of both."""
    exact: list[Tree] = []
    descents: list[Tree] = []
    for case in cases:
        graph = sharding_graph(case, tied=True, allowed=allowed(case, space))
        started = time.process_time()
        options = SolveOptions(time_limit_s=request.time_scale * LIMIT_S)
        result = solve(graph.graph, options)
        exact_s = time.process_time() - started
        if result.choices is not None:
            found = scheme_tree(scheme_of(graph, result.choices, name=space))
            exact.append({**found, "bound_s": graph.least_s(result.bound), "seconds": exact_s})
        started = time.process_time()
        choices = coordinate_descent(graph.graph)
        descent_s = time.process_time() - started
        if choices is not None:
            descents.append({**scheme_tree(scheme_of(graph, choices.tolist(), name=space)), "seconds": descent_s})
    return {
        "exact": min(exact, key=iteration_s),
        "bound_s": min(each["bound_s"] for each in exact),
        "seconds": sum(each["seconds"] for each in exact),
        "descent": min(descents, key=iteration_s, default=None),
        "descent_seconds": sum(each["seconds"] for each in descents),
        "num_meshes": len(cases),
    }


def allowed(case: ShardingCase, space: str) -> Allowed:
    """The strategies of a space."""
    every = all_strategies(case)
    if space == STORED:
        return every
    return lambda number, operator: [
        each for each in every(number, operator) if each.storage is WeightStorage.REPLICATED
    ]


def scheme_tree(scheme: Scheme) -> Tree:
    """A scheme as it is kept."""
    return {
        "iteration_s": scheme.costs.iteration_s,
        "sent_bytes": scheme.costs.sent_bytes,
        "memory_bytes": scheme.costs.memory_bytes,
        "mesh": list(scheme.case.mesh.sizes),
        "fits": scheme.fits,
    }


def iteration_s(part: Mapping[str, float]) -> float:
    """Seconds per iteration."""
    return part["iteration_s"]


def tables(parts: Parts) -> Tables:
    """What the page shows."""
    return {
        PAGE: {
            "headlines": headlines(parts),
            "whole": gains(parts, WHOLE),
            "stored": gains(parts, STORED),
            "descent": descent_table(parts),
        }
    }


def headlines(parts: Parts) -> str:
    """The paper's figures beside ours: less time than the best expert, up to."""
    rows = []
    for model, stated in STATED.items():
        for several, (kind, claim) in enumerate(zip(("one GPU", "eight GPUs"), stated, strict=True)):
            own = [
                part for name, part in parts.items() if name.startswith(model) and is_of(name, several=bool(several))
            ]
            if own:
                gains_here = (most_less(own, space) for space in (WHOLE, STORED))
                rows.append([f"{NAMES[model]}, hosts of {kind}", claim, *map(percent, gains_here)])
    head = ("up to so much less time than experts", "the paper", f"here, {WHOLE}", f"here, {STORED}")
    return markdown(head, rows)


def is_of(name: str, *, several: bool) -> bool:
    """Whether the hosts of a problem have several GPUs."""
    return (" x 1," not in name) == several


def most_less(parts: Sequence[Tree], space: str) -> float | None:
    """The most by which the optimum takes less time than the fastest scheme of its space that fits."""
    shares = [
        min(share for name in known(space) if (share := less(part, space, name)) is not None)
        for part in parts
        if any(less(part, space, name) is not None for name in known(space))
    ]
    return max(shares, default=None)


def known(space: str) -> tuple[str, ...]:
    """The schemes of a space; weights in parts include whole ones."""
    return EXPERTS[WHOLE] if space == WHOLE else (*EXPERTS[WHOLE], *EXPERTS[STORED])


def less(part: Tree, space: str, expert: str) -> float | None:
    """How much less time the optimum takes than a scheme, as a share of the latter; None if that does not fit."""
    own = part["experts"].get(expert)
    if own is None or not own["fits"]:
        return None
    share: float = 1 - part[space]["exact"]["iteration_s"] / own["iteration_s"]
    return share


def gains(parts: Parts, space: str) -> str:
    """The optimum of a space, and how much less time it takes than each scheme."""
    head = ("problem", "optimum", "mesh", "gap", "sent / least", *(f"than {name}" for name in known(space)))
    rows = []
    for name, part in parts.items():
        own = part[space]
        best = own["exact"]
        least = part["least_sent_bytes"]
        rows.append(
            [
                name,
                format_seconds(best["iteration_s"]),
                "x".join(map(str, best["mesh"])),
                percent(max(0.0, 1 - own["bound_s"] / best["iteration_s"])),
                f"{best['sent_bytes'] / least:.2f}" if least else "-",
                *(percent(less(part, space, expert)) for expert in known(space)),
            ]
        )
    return markdown(head, rows)


def descent_table(parts: Parts) -> str:
    """Coordinate descent over the optimum, and seconds of both over all meshes."""
    head = ("problem", "space", "meshes", "descent over optimum", "exact", "descent")
    rows = []
    for name, part in parts.items():
        for space in (WHOLE, STORED):
            own = part[space]
            found = own["descent"]
            over = None if found is None else max(0.0, found["iteration_s"] / own["exact"]["iteration_s"] - 1)
            seconds = (whole_seconds(own[key]) for key in ("seconds", "descent_seconds"))
            rows.append([name, space, str(own["num_meshes"]), percent(over), *seconds])
    return markdown(head, rows)


def complaint(parts: Parts) -> str:
    """Answers below a bound, and optima that are not proven."""
    return "\n".join(f"{name}: {fault}" for name, part in parts.items() for fault in faults(part))


def faults(part: Tree) -> list[str]:
    """What is wrong with the answers to one problem."""
    found = []
    for space in (WHOLE, STORED):
        own = part[space]
        bound_s = own["bound_s"] * (1 - 1e-9)
        fitting = [name for name in known(space) if part["experts"].get(name, {"fits": False})["fits"]]
        found += [f"{name} is below the bound" for name in fitting if iteration_s(part["experts"][name]) < bound_s]
        if own["descent"] is not None and iteration_s(own["descent"]) < bound_s:
            found.append(f"coordinate descent is below the bound ({space})")
        if bound_s < iteration_s(own["exact"]) * (1 - 1e-4):
            found.append(f"the optimum is not proven ({space})")
    return found


DRIVER = Driver(name="autoddl", jobs=jobs(PROBLEMS), quick_jobs=jobs(QUICK), tables=tables, complaint=complaint)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, keep the results and print the tables."""
    DRIVER.main(arguments)


if __name__ == "__main__":
    main()
