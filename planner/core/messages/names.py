"""Names like one that is not known."""

import difflib
from collections.abc import Iterable, Sequence

from stagecut.planner.core.messages.errors import BadInputError

MAX_SUGGESTED = 4


def closest(name: str, known: Iterable[str]) -> str:
    """`'x'`, or `'x-1' or 'x-2'` where these continue the name; empty if nothing is near."""
    names = list(known)
    longer = [each for each in names if each.startswith(f"{name}-")]
    return " or ".join(map(repr, longer[:MAX_SUGGESTED] or difflib.get_close_matches(name[:200], names, n=1)))


def unknown_name(kind: str, name: str, known: Sequence[str]) -> BadInputError:
    """The error for an unknown name, suggesting the nearest known names, or else listing all."""
    nearest = closest(name.lower(), known)
    hint = f"did you mean {nearest}?" if nearest else f"known: {', '.join(known)}"
    return BadInputError(f"unknown {kind} {name!r}: {hint}")
