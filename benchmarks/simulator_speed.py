"""How much faster the array engine is than the plain reference simulator.

Run from the repository root: `python -m benchmarks.simulator_speed`. Prints one table; its ratios,
not its seconds, are the result. One-off compilation of a schedule is shown apart: it is paid once
for all plans with the same warm-up depths and number of micro-batches.
"""

import time
from collections.abc import Callable

import numpy as np

from planner.core.schedule import Schedule
from planner.cost.plan_costs import PlanCosts
from planner.simulator.compilation import compile_program, scheduled_program
from planner.simulator.engine import iteration_times
from planner.simulator.levels import layout_of
from planner.simulator.schedules import pipeline_actions
from tests.pipelines import pipeline_costs, reference_spans
from tests.reference_simulator import iteration_time

NUM_STAGES = 16
NUM_MICRO_BATCHES = 256
POPULATION = 64
STAGES_PER_HOST = 4
ROUNDS = 7
SEED = 0
ROW = "{:<42} {:>14} {:>14} {:>8}"


def main() -> None:
    """Measure, compare the results, and print the table."""
    print(f"{NUM_STAGES} stages, {NUM_MICRO_BATCHES} micro-batches, 1F1B; seconds per plan, best of several runs\n")
    print(ROW.format("", "reference (s)", "engine (s)", "ratio"))
    for label, shared in (("links of its own for each flow", False), ("NICs and fabrics shared", True)):
        plans = random_plans(shared=shared)
        check(plans[:3])
        plain_s, single_s, population_s = best_s(
            lambda plans=plans: iteration_time(reference_spans(plans[0])),
            lambda plans=plans: iteration_times(plans[:1]),
            lambda plans=plans: iteration_times(plans),
        )
        print(row(f"{label}, one plan", plain_s, single_s))
        print(row(f"{label}, {POPULATION} plans", plain_s, population_s / POPULATION))
    depths = tuple(random_plans(shared=False)[0].warmup_depth.tolist())
    (compile_s,) = best_s(lambda: layout_of(compile_program(pipeline_actions(depths, NUM_MICRO_BATCHES))))
    tasks = scheduled_program(depths, NUM_MICRO_BATCHES).num_tasks
    print(f"\nonce per schedule: {compile_s:.4f} s to compile {tasks} tasks")


def random_plans(*, shared: bool) -> list[PlanCosts]:
    """Stages that differ by up to 20 %, transfers of about a tenth of a forward."""
    rng = np.random.default_rng(SEED)
    edges = NUM_STAGES - 1
    links = {}
    if shared:
        links["forward_links"] = tuple(route(s, s + 1) for s in range(edges))
        links["backward_links"] = tuple(route(s + 1, s) for s in range(edges))
    return [
        pipeline_costs(
            rng.uniform(0.9, 1.1, NUM_STAGES),
            rng.uniform(1.8, 2.2, NUM_STAGES),
            rng.uniform(0.05, 0.15, edges),
            micro_batches=NUM_MICRO_BATCHES,
            schedule=Schedule.ONE_F_ONE_B,
            **links,
        )
        for _ in range(POPULATION)
    ]


def route(sender: int, receiver: int) -> tuple[str, ...]:
    """One fabric per host shared by both directions, one way in and one way out of each host."""
    here, there = sender // STAGES_PER_HOST, receiver // STAGES_PER_HOST
    return (f"{here}:fabric",) if here == there else (f"{here}:nic-out", f"{there}:nic-in")


def best_s(*functions: Callable[[], object]) -> list[float]:
    """Least seconds of each function over rounds in which they take turns, so that they share disturbances."""
    rounds = [[seconds(function) for function in functions] for _ in range(ROUNDS)]
    return [min(times) for times in zip(*rounds, strict=True)]


def seconds(function: Callable[[], object]) -> float:
    """Of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


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


def row(label: str, plain_s: float, engine_s: float) -> str:
    """One line of the table."""
    return ROW.format(label, f"{plain_s:.4f}", f"{engine_s:.5f}", f"{plain_s / engine_s:.0f}x")


if __name__ == "__main__":
    main()
