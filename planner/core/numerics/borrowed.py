"""Arrays in compiled loops whose users are not counted."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import types
from numba.extending import intrinsic

T = TypeVar("T")

OWNER = 0
"""Where an array of numba's says whose memory it has."""


def _borrow(_: Any, kind: Any) -> tuple[Any, Callable[..., Any]]:
    return kind(kind), lambda _, builder, __, values: _without_owners(builder, values[0], kind, ())


borrowed: Callable[[T], T] = cast(Any, intrinsic)(_borrow)
"""The same array, or tuple of arrays, in a compiled function whose arguments they are, so that its caller keeps them.

Otherwise each row that a loop hands to a function counts as a user of its array, and then no longer: two locked
instructions, tens of cycles. Not for arrays made in the function, which may be freed while they are in use.
"""


def _without_owners(builder: Any, value: Any, kind: Any, place: tuple[int, ...]) -> Any:
    """The code for a value whose arrays, from that of a `kind` at a `place` on, have no owner."""
    if isinstance(kind, types.Array):
        owner = builder.extract_value(value, (*place, OWNER))
        return builder.insert_value(value, owner.type(None), (*place, OWNER))
    if isinstance(kind, types.BaseTuple):
        parts: Any = kind
        for number, part in enumerate(parts):
            value = _without_owners(builder, value, part, (*place, number))
    return value
