"""Checks shared by the constructors of the core data."""

import math
from collections.abc import Iterable

from stagecut.planner.core.messages.errors import BadInputError


def require(condition: bool, owner: str, field: str, rule: str, value: object) -> None:
    """Raise :class:`BadInputError` with the field, the rule and the value unless `condition` holds."""
    if not condition:
        raise BadInputError(f"{owner}: {field} must be {rule}, got {value!r}")


def require_count(owner: str, field: str, value: int) -> None:
    """Require an integer of at least one."""
    require(isinstance(value, int) and value >= 1, owner, field, "a whole number of at least 1", value)


def require_positive(owner: str, field: str, value: float, *, finite: bool = True) -> None:
    """Require a positive number; infinity passes only if not `finite`."""
    allowed = value > 0 and (math.isfinite(value) or not finite) and not math.isnan(value)
    require(allowed, owner, field, "a positive number", value)


def require_non_negative(owner: str, field: str, value: float) -> None:
    """Require a finite number of at least zero."""
    require(math.isfinite(value) and value >= 0, owner, field, "a number of at least 0", value)


def require_distinct(owner: str, field: str, values: Iterable[object]) -> None:
    """Require values without repetitions."""
    kept = tuple(values)
    if len(set(kept)) < len(kept):
        repeated = next(value for index, value in enumerate(kept) if value in kept[:index])
        require(False, owner, field, "without repetitions", repeated)
