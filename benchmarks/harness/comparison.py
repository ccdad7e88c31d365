"""How the answers of several solvers to one spec compare: the best time, and whether `milp` is ever worse."""

import math
from collections.abc import Iterable, Mapping

from benchmarks.harness.best_known import read_entries
from benchmarks.harness.driver import Parts
from benchmarks.harness.measuring import Answers, answers_of
from stagecut.planner.core.numerics.tolerances import EQUAL_TIMES


def complaint(parts: Parts) -> str:
    """Names of the specs for which `milp` is worse, or a bound is above the time of a plan."""
    worse = [name for name, part in parts.items() if never_worse(answers_of(part)) is False]
    wrong = [name for name, part in parts.items() if has_wrong_bound(name, answers_of(part))]
    told = (("milp is worse than another solver", worse), ("a bound is above the time of a plan", wrong))
    return "\n".join(f"{what}: {'; '.join(names)}" for what, names in told if names)


def never_worse(answers: Answers) -> bool | None:
    """Whether no plan is faster than that of `milp`; None if `milp` did not run."""
    best_s, own = best_time_s(answers), answers.get("milp")
    if own is None:
        return None
    return best_s is None or (own.objective_s is not None and own.objective_s <= best_s * (1 + EQUAL_TIMES))


def has_wrong_bound(name: str, answers: Answers) -> bool:
    """Whether a bound is above the time of any plan, including the best known."""
    known = read_entries().get(name)
    found = [(own.objective_s, own.bound_s) for own in answers.values()]
    found += [] if known is None else [(known.objective_s, known.bound_s)]
    least_s = min((seconds for seconds, _ in found if seconds is not None), default=math.inf)
    return any((bound_s or 0.0) > least_s * (1 + EQUAL_TIMES) for _, bound_s in found)


def best_time_s(answers: Answers, solvers: Iterable[str] | None = None) -> float | None:
    """The least simulated time; None if no solver has a plan."""
    chosen = answers if solvers is None else {name: answers[name] for name in solvers if name in answers}
    return min((own.objective_s for own in chosen.values() if own.objective_s is not None), default=None)


def verdict(found: Mapping[str, Answers]) -> str:
    """How often `milp` is at least as good as all other solvers."""
    judged = [verdict for answers in found.values() if (verdict := never_worse(answers)) is not None]
    others = len({solver for answers in found.values() for solver in answers} - {"milp"})
    return f"`milp` is never worse than any of the {others} other solvers on {sum(judged)} of {len(judged)} instances."
