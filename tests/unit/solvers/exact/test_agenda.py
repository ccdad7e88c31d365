"""Parts of a proof, of which several take steps at once."""

import math
from dataclasses import replace

import pytest

from stagecut.planner.core.problem import Problem
from stagecut.planner.solvers.exact import branch_and_bound
from stagecut.planner.solvers.exact.agenda import Agenda, Outcome
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import CATALOGUE, PLAIN_SCHEDULES, chain, job, one_device_per_server

HETEROGENEOUS = next(known.problem for known in CATALOGUE if known.name == "heterogeneous chain")
TIMELESS = {"seconds": 0.0, "step_seconds": (), "history": ()}


class Ladder:
    """A part whose bound rises by one at each step, and that then divides in two until it is `top`."""

    is_stuck = is_small = False

    def __init__(self, bound_s, top):
        self.bound_s, self.top = bound_s, top

    def step(self, search):
        search.count("steps")
        if self.bound_s >= self.top:
            return Outcome((), self.bound_s)
        return Outcome((Ladder(self.bound_s + 1.0, self.top), Ladder(self.bound_s + 1.0, self.top - 1.0)))


class Stuck(Ladder):
    is_stuck = True


def agenda_of(*parts, jobs, polish=()):
    problem = Problem(model=chain(2, {"gpu": 1.0}), cluster=one_device_per_server("gpu"), job=job(2))
    search = Search(problem, SolveOptions(time_limit_s=None, jobs=jobs))
    return search, Agenda(search, parts, polish)


@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_bound_is_that_of_the_weakest_part_ever_finished(jobs):
    """Halves of a ladder up to 5 end where bound and top meet: at 3 at the lowest (2.5 rounded up)."""
    search, agenda = agenda_of(Ladder(0.0, 5.0), jobs=jobs)
    agenda.run()
    assert agenda.bound_s == search.bound_s == 3.0


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_weakest_part_that_proves_no_more_ends_it(jobs):
    _, agenda = agenda_of(Ladder(0.0, 5.0), Stuck(1.0, 5.0), jobs=jobs)
    agenda.run()
    assert agenda.bound_s == 1.0


class Polisher:
    """A part that proves nothing and notes its name at each step."""

    bound_s, is_stuck, is_small = math.inf, False, False

    def __init__(self, name, noted):
        self.name, self.noted = name, noted

    def step(self, search):
        self.noted.append(self.name)
        return Outcome(())


@pytest.mark.parametrize("jobs", [1, 2])
def test_plans_are_polished_ever_more_seldom_in_turn(jobs):
    """A ladder up to 9 takes 177 steps; of all, the 32nd, 40th, .., 176th, 184th and 193rd are polishing."""
    noted = []
    search, agenda = agenda_of(Ladder(0.0, 9.0), polish=[Polisher(name, noted) for name in "ab"], jobs=jobs)
    agenda.run()
    assert dict(search.result("test", proves=True).counts) == {"steps": 177}
    assert noted == [*"ababababababababababa"]
    assert agenda.bound_s == 5.0


@pytest.mark.parametrize("worth_a_thread", [0, branch_and_bound.WORTH_A_THREAD])
def test_the_answer_is_the_same_for_any_number_of_jobs(worth_a_thread, monkeypatch):
    """Steps of nodes on threads as well, as in large networks."""
    monkeypatch.setattr(branch_and_bound, "WORTH_A_THREAD", worth_a_thread)
    problem = replace(HETEROGENEOUS, job=replace(HETEROGENEOUS.job, schedules=PLAIN_SCHEDULES, micro_batches=(1, 2)))
    options = SolveOptions(gap=0.0, time_limit_s=None)
    answers = [replace(run(problem, "milp", replace(options, jobs=jobs)), **TIMELESS) for jobs in (1, 2, 4)]
    assert answers[0] == answers[1] == answers[2]


def test_a_fault_in_a_step_ends_the_search_with_what_is_known(monkeypatch):
    def fails(*arguments):
        raise ZeroDivisionError

    monkeypatch.setattr(branch_and_bound, "WORTH_A_THREAD", 0)
    monkeypatch.setattr(branch_and_bound.Node, "bisect", fails)
    with pytest.warns(match="ZeroDivisionError"):
        result = run(HETEROGENEOUS, "milp", SolveOptions(gap=0.0, time_limit_s=None, jobs=2))
    assert result.plan is not None
    assert "ZeroDivisionError" in result.fault.reason
