"""How much faster the array engine is than the plain reference simulator.

Its ratios, not its seconds, are the result. One-off compilation of a schedule is shown apart: it is paid once
for all plans with the same warm-up depths and number of micro-batches.
"""

import time
from collections.abc import Callable

import numpy as np

from benchmarks.harness.driver import Jobs, Parts
from benchmarks.harness.measuring import Tree
from benchmarks.report.pages import markdown, times
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.action_lists import pipeline_actions
from stagecut.planner.simulator.compilation import compile_actions, pipeline_graph
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.simulator.event_loop import game_of
from tests.pipelines import pipeline_costs, reference_spans
from tests.reference_simulator import iteration_time

POPULATION = 64
STAGES_PER_HOST = 4
ROUNDS = 7
SEED = 0
PART = "simulator"
HEAD = ("seconds per plan", "plain event loop", "engine", "ratio")


def jobs(num_stages: int, num_microbatches: int) -> Jobs:
    """Jobs by name of the part."""
    return {PART: lambda _: measure(num_stages, num_microbatches)}


def measure(num_stages: int, num_microbatches: int) -> Tree:
    """Seconds per plan of both simulators, whose results are compared, and seconds to compile the schedule."""
    rows = {}
    for label, shared in (("links of its own for each flow", False), ("NICs and fabrics shared", True)):
        plans = random_plans(num_stages, num_microbatches, shared=shared)
        check(plans[:3])
        plain_s, single_s, population_s = best_s(
            lambda plans=plans: iteration_time(reference_spans(plans[0])),
            lambda plans=plans: iteration_times(plans[:1]),
            lambda plans=plans: iteration_times(plans),
        )
        rows[f"{label}, one plan"] = {"reference_s": plain_s, "engine_s": single_s}
        rows[f"{label}, {POPULATION} plans"] = {"reference_s": plain_s, "engine_s": population_s / POPULATION}
    depths = tuple(random_plans(num_stages, num_microbatches, shared=False)[0].warmup_depth.tolist())
    (compile_s,) = best_s(lambda: game_of(compile_actions(pipeline_actions(depths, num_microbatches))))
    return {
        "rows": rows,
        "compile_s": compile_s,
        "tasks": pipeline_graph(depths, num_microbatches).num_tasks,
        "stages": num_stages,
        "micro_batches": num_microbatches,
    }


def tables(parts: Parts) -> dict[str, str]:
    """Tables by marker."""
    part = parts.get(PART)
    if part is None:
        return {"simulator": markdown(HEAD, [])}
    rows = [_row(label, of["reference_s"], of["engine_s"]) for label, of in sorted(part["rows"].items())]
    size = f"{part['stages']} stages, {part['micro_batches']} micro-batches under 1F1B"
    once = f"once per schedule, {part['compile_s']:.2f} s to compile its {part['tasks']:,} tasks"
    return {"simulator": f"{markdown(HEAD, rows)}\n\n{size}; {once}."}


def random_plans(num_stages: int, num_microbatches: int, *, shared: bool) -> list[PlanCosts]:
    """Random costs: stages that differ by up to 20 %, transfers of about a tenth of a forward."""
    rng = np.random.default_rng(SEED)
    edges = num_stages - 1
    links = {}
    if shared:
        links["forward_links"] = tuple(route(s, s + 1) for s in range(edges))
        links["backward_links"] = tuple(route(s + 1, s) for s in range(edges))
    return [
        pipeline_costs(
            rng.uniform(0.9, 1.1, num_stages),
            rng.uniform(1.8, 2.2, num_stages),
            rng.uniform(0.05, 0.15, edges),
            micro_batches=num_microbatches,
            schedule=Schedule.ONE_F_ONE_B,
            **links,
        )
        for _ in range(POPULATION)
    ]


def route(sender: int, receiver: int) -> tuple[str, ...]:
    """One fabric per host, shared by both directions, and one link into and one out of each host."""
    here, there = sender // STAGES_PER_HOST, receiver // STAGES_PER_HOST
    return (f"{here}:fabric",) if here == there else (f"{here}:nic-out", f"{there}:nic-in")


def best_s(*functions: Callable[[], object]) -> list[float]:
    """Least seconds of each function over rounds in which they alternate, so that they share disturbances."""
    rounds = [[seconds(function) for function in functions] for _ in range(ROUNDS)]
    return [min(times) for times in zip(*rounds, strict=True)]


def seconds(function: Callable[[], object]) -> float:
    """Seconds of one call, of the processor, so that other work on the machine hardly counts."""
    started = time.process_time()
    function()
    return time.process_time() - started


def check(plans: list[PlanCosts]) -> None:
    """Stop if the two simulators disagree.

    Raises
    ------
    SystemExit
        With the two lists of times.
    """
    expected = [iteration_time(reference_spans(plan)) for plan in plans]
    got = iteration_times(plans).tolist()
    if got != expected:
        raise SystemExit(f"times differ: reference {expected}, engine {got}")


def _row(label: str, plain_s: float, engine_s: float) -> list[str]:
    return [label, f"{plain_s:.4f} s", f"{engine_s:.5f} s", times(plain_s / engine_s, digits=0)]
