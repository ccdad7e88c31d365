"""The most that synchronous pipelines of unlike shape could save, and what plans made by hand do.

    python -m benchmarks.unlike_pipelines

with the options of `benchmarks/harness/driver.py`; `--docs` puts the table into docs/decisions.md. For each problem:
the best plan of alike pipelines with its bound (`milp`), the fluid bound on pipelines of any shapes
(`benchmarks/unlike_pipelines/fluid.py`), and a plan of unlike pipelines made by hand
(`benchmarks/unlike_pipelines/constructed.py`).
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial

from benchmarks.harness.driver import Driver, Jobs, Parts, Request, Tables
from benchmarks.harness.measuring import Tree
from benchmarks.report.pages import ROOT, markdown
from benchmarks.unlike_pipelines.cases import CASES, CONTROLS, QUICK, Case
from benchmarks.unlike_pipelines.constructed import GAP, Builder, Constructed
from benchmarks.unlike_pipelines.fluid import fluid_bound_s
from benchmarks.unlike_pipelines.groupings import Group
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.units import format_seconds
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions

PAGE = ROOT / "docs" / "decisions.md"
TIME_LIMIT_S = 60.0
CONTROL_NAMES = tuple(case.name for case in CONTROLS)
WORTH_IT = 0.03
"""Gain that group."""


def jobs(cases: Sequence[Case]) -> Jobs:
    """One part for each case."""
    return {case.name: partial(measure, case) for case in cases}


def measure(case: Case, request: Request) -> Tree:
    """Alike pipelines, the fluid bound, and unlike pipelines."""
    problem = case.problem()
    limit_s = request.time_scale * TIME_LIMIT_S
    alike = run(problem, "milp", SolveOptions(gap=GAP, time_limit_s=limit_s))
    if alike.plan is None or alike.objective_s is None:
        raise RuntimeError(f"no plan of alike pipelines for {case.name}")
    unlike = Builder(problem).best()
    return {
        "alike": {
            "objective_s": alike.objective_s,
            "bound_s": alike.bound_s,
            "gap": alike.gap,
            "plan": layout(alike.plan),
        },
        "fluid_bound_s": fluid_bound_s(problem, at_most_s=alike.objective_s),
        "unlike": None if unlike is None else unlike_tree(unlike, [each.kind.name for each in case.hosts]),
    }


def unlike_tree(unlike: Constructed, kinds: Sequence[str]) -> Tree:
    """A plan of unlike pipelines, by kind of group."""
    return {
        "seconds": unlike.seconds,
        "sync_s": unlike.sync_s,
        "groups": [
            {
                "number": unlike.grouping.count(group),
                "hosts": hosts_text(group, kinds),
                "samples": samples,
                "seconds": unlike.plans[group].seconds,
                "plan": layout(plan) if (plan := unlike.plans[group].plan) is not None else None,
            }
            for group, samples in unlike.shares.items()
        ],
    }


def hosts_text(group: Group, kinds: Sequence[str]) -> str:
    """Hosts of a group by kind, as `3 x 8 a100-40 + 1 x 4 v100-16`."""
    return " + ".join(f"{n} x {devices} {kinds[index]}" for (index, devices), n in sorted(Counter(group).items()))


def layout(plan: Plan) -> Tree:
    """A plan in short."""
    return {
        "pipelines": len(plan.pipelines),
        "schedule": str(plan.schedule),
        "micro_batch": plan.micro_batch,
        "num_microbatches": plan.num_microbatches,
        "stages": [
            f"{stage.stop - stage.start} layers on {stage.devices[0].partition('/')[0]}, "
            f"{stage.replicas} x {stage.tensor_parallel}" + (", recomputed" if stage.recompute else "")
            for stage in plan.stages
        ],
    }


def most(part: Tree) -> float:
    """The most that unlike pipelines could save of the time of the alike ones."""
    return float(1 - part["fluid_bound_s"] / part["alike"]["objective_s"])


def gain(part: Tree) -> float | None:
    """What the unlike pipelines made by hand save of it; negative if they are slower."""
    return None if part["unlike"] is None else float(1 - part["unlike"]["seconds"] / part["alike"]["objective_s"])


def alike_bound_s(part: Tree) -> float:
    """No alike pipelines are faster: `milp` proves it, or the fluid bound, which holds for them too."""
    return float(max(part["alike"]["bound_s"] or 0.0, part["fluid_bound_s"]))


def sure_gain(part: Tree) -> float | None:
    """What they save of the bound on alike ones: no alike plan can undo it."""
    return None if part["unlike"] is None else float(1 - part["unlike"]["seconds"] / alike_bound_s(part))


def tables(parts: Parts) -> Tables:
    """All problems, and how many are above the gain that group."""
    head = (
        "hosts",
        "model, batch",
        "alike",
        "gap",
        "fluid bound",
        "at most",
        "unlike groups: samples of each",
        "unlike",
        "gain",
    )
    rows = [_row(name, part) for name, part in parts.items()]
    return {PAGE: {"unlike pipelines": f"{markdown(head, rows)}\n\n{verdict(parts)}"}}


def verdict(parts: Parts) -> str:
    """How many problems gain more than WORTH_IT, by construction and by bound; controls do not count."""
    parts = {name: part for name, part in parts.items() if name not in CONTROL_NAMES}
    surely = sum((sure_gain(part) or 0.0) > WORTH_IT for part in parts.values())
    found = sum((gain(part) or 0.0) > WORTH_IT for part in parts.values())
    could = sum(most(part) > WORTH_IT for part in parts.values())
    return (
        f"The unlike plans save more than {100 * WORTH_IT:.0f} % of the best alike plan found in {found} of "
        f"{len(parts)} problems, and of the bound on all alike plans in {surely}; the fluid bound leaves room for "
        f"more than that in {could}."
    )


def _row(name: str, part: Tree) -> list[str]:
    model, batch, hosts = name.split(", ", 2)
    hosts = f"{hosts} (control)" if name in CONTROL_NAMES else hosts
    alike, unlike = part["alike"], part["unlike"]
    return [
        hosts,
        f"{model}, {batch.removeprefix('batch ')}",
        format_seconds(alike["objective_s"]),
        _percent(1 - alike_bound_s(part) / alike["objective_s"]),
        format_seconds(part["fluid_bound_s"]),
        _percent(most(part)),
        "-" if unlike is None else "; ".join(map(_group_text, unlike["groups"])),
        "-" if unlike is None else format_seconds(unlike["seconds"]),
        _percent(gain(part)),
    ]


def _group_text(group: Tree) -> str:
    hosts = f"{group['number']} x ({group['hosts']})" if group["number"] > 1 else group["hosts"]
    return f"{hosts}: {group['samples']}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


DRIVER = Driver(name="unlike_pipelines", jobs=jobs((*CASES, *CONTROLS)), quick_jobs=jobs(QUICK), tables=tables)
