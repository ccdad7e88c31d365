"""Error messages for names that are not in a catalogue."""

import difflib
from collections.abc import Sequence

from stagecut.planner.core.errors import BadInputError


def unknown_name(kind: str, name: str, known: Sequence[str]) -> BadInputError:
    """The error for an unknown name, suggesting the nearest known name, or else listing all."""
    nearest = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(known)}"
    return BadInputError(f"unknown {kind} {name!r}: {hint}")
