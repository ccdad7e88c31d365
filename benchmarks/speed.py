"""Seconds of the parts of a search, and of other formulations and planners.

Options: `benchmarks/harness/driver.py`. Counts are the same in every run; seconds depend on the machine, so only
those of one run are compared. The tables: what the steps of `milp` leave and take (`solver_steps`), what a second job
brings (`second_job`), what labels, MIPs and rows close (`contributions`), the formulations against each other
(`formulations`), the other planners (`other_planners`), the simulator (`simulator_speed`).
"""

from dataclasses import replace

from benchmarks import contributions, formulations, other_planners, second_job, simulator_speed, solver_steps
from benchmarks.harness.driver import Driver, Jobs, Parts, Tables
from benchmarks.problems.registry import DP, FAMILIES, LONG, SMOKE, SPEED, STEPS, TEXTBOOK, TEXTBOOK_RACE, WAYS
from benchmarks.problems.specs import Spec
from benchmarks.report.pages import BENCHMARKS_PAGE, SOLVER_PAGE


def jobs(
    *,
    steps: tuple[Spec, ...] = STEPS,
    long: tuple[Spec, ...] = LONG,
    ways: tuple[Spec, ...] = WAYS,
    families: tuple[Spec, ...] = FAMILIES,
    solvers: tuple[Spec, ...] = SPEED,
    textbook: tuple[Spec, ...] = TEXTBOOK,
    races: tuple[Spec, ...] = TEXTBOOK_RACE,
    dp: tuple[Spec, ...] = DP,
    simulator: tuple[int, int] = (16, 256),
) -> Jobs:
    """What is measured, by name of the part: name of the table and of the spec.

    Parameters
    ----------
    simulator
        Stages and micro-batches of the plans that are simulated.
    """
    return {
        **simulator_speed.jobs(*simulator),
        **solver_steps.jobs(steps),
        **second_job.jobs(long),
        **contributions.jobs(ways=ways, families=families),
        **other_planners.jobs(solvers),
        **formulations.jobs(textbook=textbook, races=races, dp=dp),
    }


def tables(parts: Parts) -> Tables:
    """Formulations go to the page about the solver, the others to that about benchmarks."""
    return {
        SOLVER_PAGE: formulations.tables(parts),
        BENCHMARKS_PAGE: {
            **other_planners.tables(parts),
            **simulator_speed.tables(parts),
            **solver_steps.tables(parts),
            **second_job.tables(parts),
            **contributions.tables(parts),
        },
    }


QUICK = tuple(replace(spec, solvers=("even", "greedy")) for spec in SMOKE)
DRIVER = Driver(
    name="speed",
    jobs=jobs(),
    quick_jobs=jobs(
        steps=SMOKE,
        long=SMOKE,
        ways=SMOKE,
        families=SMOKE,
        solvers=QUICK,
        textbook=SMOKE,
        races=SMOKE,
        dp=SMOKE,
        simulator=(4, 8),
    ),
    tables=tables,
)

if __name__ == "__main__":
    DRIVER.main()
