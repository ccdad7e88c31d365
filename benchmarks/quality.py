"""Quality of plans: every solver's simulated time, bound and gap; see `benchmarks/harness/driver.py` for the options.

Every search has a process of its own, one after another on one machine. Times of iterations are
simulated and reproducible; seconds depend on the machine, and so do the plans and bounds of a
search that its time limit ends. Better plans and bounds than the best known ones are filed under
`benchmarks/instances`. Ends with exit code 1 where `milp` is worse than any other solver.
"""

from collections.abc import Mapping
from functools import partial

from benchmarks.harness.best_known import improve, read_entries
from benchmarks.harness.comparison import best_time_s, complaint, never_worse, verdict
from benchmarks.harness.driver import Driver, Parts, Request, Tables
from benchmarks.harness.measuring import Answer, Answers, Tree, answers_of
from benchmarks.pictures import pictures
from benchmarks.problems.registry import QUALITY, SMOKE
from benchmarks.problems.specs import COMPARED, PUBLISHED, Spec
from benchmarks.report.pages import BENCHMARKS_PAGE, README, markdown, percent, ratio, whole_seconds
from stagecut.planner.core.units import format_seconds

SPECS = {spec.name: spec for spec in (*QUALITY, *SMOKE)}
PROOF_HEAD = ("best time", "bound", "gap", "seconds", "memory", "wanted gap within", "proven after")


def measure(spec: Spec, request: Request) -> Tree:
    """Every solver's answer to one spec; improvements on the best known are filed."""
    found = request.answers(spec)
    if request.keeps:
        improve(spec, found)
    return {solver: measured.answer.tree() for solver, measured in found.items()}


def tables(parts: Parts) -> Tables:
    """A short table for the README, and the full ones for the page of the benchmarks."""
    found = {name: answers_of(part) for name, part in parts.items()}
    return {
        README: {"quality table": readme_table(found)},
        BENCHMARKS_PAGE: {
            "quality": f"{wide_table(found)}\n\n{verdict(found)}",
            "proofs": proof_table(found),
            "search seconds": seconds_table(found),
            "refusals": refusals(found),
            "best known": best_known_table(),
        },
    }


def readme_table(found: Mapping[str, Answers]) -> str:
    """The even split and the best published planner beside `milp`, with the gap it proves."""
    head = ("instance", "even", "best published planner", "milp", "gap", "seconds")
    return markdown(head, [_readme_row(name, answers) for name, answers in found.items()])


def wide_table(found: Mapping[str, Answers]) -> str:
    """Every solver relative to the fastest plan."""
    head = ("instance", *COMPARED, "best time", "milp never worse")
    return markdown(head, [_wide_row(name, answers) for name, answers in found.items()])


def proof_table(found: Mapping[str, Answers]) -> str:
    """What `milp` proves, and what it takes to do so."""
    head = ("instance", "devices", *PROOF_HEAD)
    rows = [[name, _devices(SPECS[name]), *_proof(SPECS[name], answers)] for name, answers in found.items()]
    return markdown(head, rows)


def seconds_table(found: Mapping[str, Answers]) -> str:
    """How long every solver searches."""
    rows = [
        [name, *(whole_seconds(answers[solver].search_s if solver in answers else None) for solver in COMPARED)]
        for name, answers in found.items()
    ]
    return markdown(("instance", *COMPARED), rows)


def refusals(found: Mapping[str, Answers]) -> str:
    """Why solvers have no plan, by solver and reason; reasons specific to a problem are listed with it."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, answers in found.items():
        for solver, answer in answers.items():
            if answer.objective_s is None:
                reasons.setdefault((solver, answer.reason or answer.status), []).append(name)
    if not reasons:
        return "Every solver has a plan for every instance."
    return "\n".join(f"- `{solver}`: {reason} ({'; '.join(names)})" for (solver, reason), names in reasons.items())


def best_known_table() -> str:
    """The entries filed under `benchmarks/instances`."""
    rows = [
        [name, format_seconds(entry.objective_s), entry.solver, _seconds(entry.bound_s), percent(entry.gap)]
        for name, entry in sorted(read_entries().items())
    ]
    return markdown(("instance", "best time", "found by", "best bound", "gap"), rows)


def _readme_row(name: str, answers: Answers) -> list[str]:
    best_s = best_time_s(answers)
    return [
        name,
        _over_best(answers.get("even"), best_s),
        _best_published(answers, best_s),
        _over_best(answers.get("milp"), best_s),
        *_proof(SPECS[name], answers)[2:4],
    ]


def _wide_row(name: str, answers: Answers) -> list[str]:
    best_s = best_time_s(answers)
    told = {True: "yes", False: "NO", None: "-"}[never_worse(answers)]
    return [name, *(_over_best(answers.get(solver), best_s) for solver in COMPARED), _seconds(best_s), told]


def _proof(spec: Spec, answers: Answers) -> list[str]:
    own = answers.get("milp", Answer(status="-"))
    return [
        _seconds(best_time_s(answers)),
        _seconds(own.bound_s),
        percent(own.gap),
        whole_seconds(own.seconds),
        "-" if own.peak_bytes is None else f"{own.peak_bytes / 2**30:.2f} GiB",
        f"{100 * spec.wanted_gap:g} %, {spec.time_limit_s:.0f} s",
        whole_seconds(own.seconds_to(spec.wanted_gap)),
    ]


def _best_published(answers: Answers, best_s: float | None) -> str:
    least_s = best_time_s(answers, PUBLISHED)
    winners = [name for name in PUBLISHED if name in answers and answers[name].objective_s == least_s]
    return "-" if least_s is None else f"{_over_best(answers[winners[0]], best_s)} ({winners[0]})"


def _over_best(answer: Answer | None, best_s: float | None) -> str:
    over = None if answer is None else ratio(answer.objective_s, best_s)
    return "-" if over is None else f"{over:.4f}"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else format_seconds(seconds)


def _devices(spec: Spec) -> str:
    return str(spec.problem().cluster.num_devices)


DRIVER = Driver(
    name="quality",
    jobs={spec.name: partial(measure, spec) for spec in QUALITY},
    quick_jobs={spec.name: partial(measure, spec) for spec in SMOKE},
    tables=tables,
    pictures=lambda parts: pictures({name: answers_of(part) for name, part in parts.items()}),
    complaint=complaint,
)

if __name__ == "__main__":
    DRIVER.main()
