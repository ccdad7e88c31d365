"""One text for one tree: the same bytes on every machine."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

TreeValue: TypeAlias = "bool | int | float | str | Sequence[TreeValue] | Mapping[str, TreeValue] | None"
Tree: TypeAlias = Mapping[str, TreeValue]
"""What JSON can hold, ready to be written."""

UNLIMITED_WORD = "unlimited"
"""Written for infinity, which JSON has no number for."""


def format_json(tree: Tree) -> str:
    """Indented JSON, keys sorted, floats such that they read back exactly, a newline at the end."""
    return json.dumps(tree, indent=2, sort_keys=True, allow_nan=False) + "\n"


def sha256_of(tree: Tree) -> str:
    """Hexadecimal hash of the tree as JSON without white space, keys sorted."""
    text = json.dumps(tree, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def number_or_unlimited(value: float) -> float | str:
    """The number, or the word that stands for infinity."""
    return UNLIMITED_WORD if value == float("inf") else float(value)
