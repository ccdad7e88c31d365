"""Canonical JSON: the same tree gives the same bytes on every machine."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

TreeValue: TypeAlias = "bool | int | float | str | Sequence[TreeValue] | Mapping[str, TreeValue] | None"
Tree: TypeAlias = Mapping[str, TreeValue]
"""A JSON object ready to be written."""

UNLIMITED_WORD = "unlimited"
"""Stands for infinity, which JSON cannot express as a number."""


def format_json(tree: Tree) -> str:
    """Indented JSON with sorted keys, floats that read back exactly, and a final newline."""
    return json.dumps(tree, indent=2, sort_keys=True, allow_nan=False) + "\n"


def sha256_of(tree: Tree) -> str:
    """Hexadecimal hash of the tree as JSON with sorted keys and no white space."""
    text = json.dumps(tree, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def number_or_unlimited(value: float) -> float | str:
    """The number as a float, or `unlimited` for infinity."""
    return UNLIMITED_WORD if value == math.inf else float(value)
