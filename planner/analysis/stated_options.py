"""Search options as the provenance of a plan file states them: written, and read back with the same limits."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.io.documents.complaints import nearest
from stagecut.planner.io.files.plan_statements import OptionValue, Provenance
from stagecut.planner.solvers.registry import SOLVERS
from stagecut.planner.solvers.search.options import RowChoice, SolveOptions

LARGEST_SEED = 2**31 - 1
MOST_THREADS = 1024
NAMES = ("solver", "gap", "time_limit_s", "memory_limit_bytes", "rows", "threads")
"""Options of a provenance; the seed has an entry of its own."""


def option_values(options: SolveOptions, *, solver: str) -> dict[str, OptionValue]:
    """The options as a provenance records them."""
    return {"solver": solver} | {name: getattr(options, name) for name in NAMES[1:]} | {"rows": str(options.rows)}


def stated_options(
    provenance: Provenance, *, solvers: Collection[str] = SOLVERS.keys()
) -> tuple[SolveOptions, tuple[str, ...]]:
    """The options of a plan file and what is wrong with them; wrong or missing ones take their defaults."""
    options, wrong = SolveOptions(), []
    for name, value in provenance.options:
        if name not in NAMES:
            wrong.append(f"provenance.options: there is no option {name!r}{nearest(name, NAMES)}")
            continue
        try:
            options = replace(options, **_checked(name, value, solvers))
        except BadInputError as fault:
            wrong.append(f"provenance.{fault}")
    try:
        require(provenance.seed <= LARGEST_SEED, "provenance", "seed", f"at most {LARGEST_SEED}", provenance.seed)
        options = replace(options, seed=provenance.seed)
    except BadInputError as fault:
        wrong.append(str(fault))
    return options, tuple(wrong)


def _checked(name: str, value: OptionValue, solvers: Collection[str]) -> dict[str, Any]:
    """The option as an argument of :class:`SolveOptions`, whose own checks follow; none for the solver."""
    if name == "solver":
        require(value in solvers, "options", name, f"one of {', '.join(solvers)}", value)
        return {}
    if name == "rows":
        require(value in list(RowChoice), "options", name, f"one of {', '.join(RowChoice)}", value)
        return {name: RowChoice(str(value))}
    if name == "threads":
        is_valid = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_THREADS
        require(is_valid, "options", name, f"a whole number from 1 to {MOST_THREADS}", value)
        return {name: value}
    if value is None and name != "gap":
        return {name: None}
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    require(is_number, "options", name, "a number", value)
    return {name: float(value or 0)}
