"""Error messages for names that are not in a catalogue."""

from collections.abc import Sequence

from stagecut.planner.core.errors import BadInputError
from stagecut.planner.io.documents.complaints import closest


def unknown_name(kind: str, name: str, known: Sequence[str]) -> BadInputError:
    """The error for an unknown name, suggesting the nearest known names, or else listing all."""
    nearest = closest(name.lower(), known)
    hint = f"did you mean {nearest}?" if nearest else f"known: {', '.join(known)}"
    return BadInputError(f"unknown {kind} {name!r}: {hint}")
