"""Names of layers made of several parts."""

from collections.abc import Sequence

from stagecut.planner.core.visible import visible

MAX_NAME = 100


def names_of_runs(runs: Sequence[tuple[str, str, int]]) -> list[str]:
    """A name for each run, made from those of its first and last part, and numbered where it would repeat.

    Parameters
    ----------
    runs
        First name, last name and number of parts of each.
    """
    taken: set[str] = set()
    names = []
    for first, last, num_parts in runs:
        stem = visible(first if num_parts == 1 else f"{first}..{last}")[: MAX_NAME - 8] or "layer"
        number = 1
        while (name := stem if number == 1 else f"{stem}-{number}") in taken:
            number += 1
        taken.add(name)
        names.append(name)
    return names
