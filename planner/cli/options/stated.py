"""Options of a search as a plan file states them, held to what the command line accepts."""

from collections.abc import Callable
from dataclasses import replace

from stagecut.planner.cli.options.search import LARGEST_SEED, MOST_THREADS
from stagecut.planner.core.checks import require
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.io.documents.complaints import nearest
from stagecut.planner.io.files.plan_file import OptionValue, Provenance
from stagecut.planner.solvers.registry import SOLVERS
from stagecut.planner.solvers.search.options import RowChoice, SolveOptions

WHERE = "provenance.options"


def stated_options(provenance: Provenance) -> tuple[SolveOptions, tuple[str, ...]]:
    """The options of a plan file, and what is wrong with them.

    Those that are wrong or not stated have their defaults.
    """
    options, wrong = SolveOptions(), []
    for name, value in provenance.options:
        if name not in _TAKE:
            wrong.append(f"{WHERE}: there is no option {name!r}{nearest(name, _TAKE)}")
            continue
        try:
            options = _TAKE[name](options, value)
        except BadInputError as fault:
            wrong.append(f"provenance.{fault}")
    try:
        require(provenance.seed <= LARGEST_SEED, "provenance", "seed", f"at most {LARGEST_SEED}", provenance.seed)
        options = replace(options, seed=provenance.seed)
    except BadInputError as fault:
        wrong.append(str(fault))
    return options, tuple(wrong)


def _take_solver(options: SolveOptions, value: OptionValue) -> SolveOptions:
    require(value in SOLVERS, "options", "solver", f"one of {', '.join(SOLVERS)}", value)
    return options


def _take_gap(options: SolveOptions, value: OptionValue) -> SolveOptions:
    return replace(options, gap=_number("gap", value))


def _take_time_limit(options: SolveOptions, value: OptionValue) -> SolveOptions:
    return replace(options, time_limit_s=None if value is None else _number("time_limit_s", value))


def _take_memory_limit(options: SolveOptions, value: OptionValue) -> SolveOptions:
    return replace(options, memory_limit_bytes=None if value is None else _number("memory_limit_bytes", value))


def _take_rows(options: SolveOptions, value: OptionValue) -> SolveOptions:
    choices = [str(rows) for rows in RowChoice]
    require(value in choices, "options", "rows", f"one of {', '.join(choices)}", value)
    return replace(options, rows=RowChoice(str(value)))


def _take_threads(options: SolveOptions, value: OptionValue) -> SolveOptions:
    rule = f"a whole number from 1 to {MOST_THREADS}"
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_THREADS:
        raise BadInputError(f"options: threads must be {rule}, got {value!r}")
    return replace(options, threads=value)


def _number(name: str, value: OptionValue) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInputError(f"options: {name} must be a number, got {value!r}")
    return float(value)


_TAKE: dict[str, Callable[[SolveOptions, OptionValue], SolveOptions]] = {
    "solver": _take_solver,
    "gap": _take_gap,
    "time_limit_s": _take_time_limit,
    "memory_limit_bytes": _take_memory_limit,
    "rows": _take_rows,
    "threads": _take_threads,
}
"""As :func:`planner.cli.options.search.option_values` writes them."""
