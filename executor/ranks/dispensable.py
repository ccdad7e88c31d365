"""Sets of ranks without which the others can go on."""

from collections.abc import Mapping, Sequence

Crews = Sequence[Sequence[int]]
"""Sets of ranks that end together; all but one may be lost."""


def lost_crews(exit_codes: Mapping[int, int], crews: Crews) -> list[Sequence[int]]:
    """Those of which a rank has failed."""
    return [crew for crew in crews if any(exit_codes.get(rank) for rank in crew)]


def goes_on(exit_codes: Mapping[int, int], crews: Crews) -> bool:
    """Whether the ranks that have failed can be done without.

    Parameters
    ----------
    exit_codes
        Of ranks that have ended: 0 for success, negative for signals.
    """
    failed = {rank for rank, code in exit_codes.items() if code}
    lost = lost_crews(exit_codes, crews)
    return not failed or (len(lost) < len(crews) and failed <= {rank for crew in lost for rank in crew})
