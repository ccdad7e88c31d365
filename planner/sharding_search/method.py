"""The ways to look for shardings."""

from enum import StrEnum


class Method(StrEnum):
    """How shardings are looked for."""

    EXACT = "exact"
    """The choice graph solved to proof, beside the expert schemes."""
    COORDINATE_DESCENT = "coordinate-descent"
    """The search of AutoDDL, beside the expert schemes."""
    EXPERTS = "experts"
    """The schemes people use, no more."""
