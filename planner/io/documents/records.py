"""Core dataclasses built from checked entries and written as trees, field by field.

Entries and dataclasses give a field the same name, so only fields that differ have to be spelled out.
"""

from collections.abc import Callable, Collection
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from stagecut.planner.io.documents.canonical import UNLIMITED_WORD, TreeValue, number_or_unlimited
from stagecut.planner.io.documents.fields import Entry

T = TypeVar("T")


def from_entry(kind: Callable[..., T], entry: Entry, **others: object) -> T:
    """Build a dataclass from an entry with fields of the same names.

    Nested entries become dataclasses, lists tuples, mappings pairs in order of their keys, and the word
    `unlimited` infinity. Null, where the dataclass accepts none, means the dataclass's default.

    Parameters
    ----------
    kind
        The dataclass.
    others
        Fields that the entry does not hold in this form.

    Raises
    ------
    BadInputError
        If the dataclass rejects a value.
    """
    values = dict(others)
    for name, (hint, optional) in _hints(kind).items():
        value = getattr(entry, name, None)
        if name not in others and (optional or value is not None):
            values[name] = _core(value, hint)
    return kind(**values)


def tree_of(record: Any, *, without: Collection[str] = (), omit_empty: bool = False) -> dict[str, TreeValue]:
    """The inverse of :func:`from_entry`: a dataclass as a file holds it.

    Parameters
    ----------
    without
        Fields to leave out.
    omit_empty
        Leave out what is None, an empty string or an empty tuple, here and in nested dataclasses.
    """
    return {
        name: _tree_value(value, hint, omit_empty=omit_empty)
        for name, (hint, _) in _hints(record.__class__).items()
        if name not in without and not ((value := getattr(record, name)) in (None, "", ()) and omit_empty)
    }


@cache
def _hints(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Type of each field, and whether it may be None."""
    hints = get_type_hints(kind)
    return {field.name: _without_none(hints[field.name]) for field in fields(kind)}


def _without_none(hint: Any) -> tuple[Any, bool]:
    parts = get_args(hint)
    if NoneType not in parts:
        return hint, False
    others = [part for part in parts if part is not NoneType]
    return others[0] if len(others) == 1 else hint, True


def _core(value: object, hint: Any) -> Any:
    if isinstance(value, Entry):
        kind: Callable[..., object] = hint
        return from_entry(kind, value) if is_dataclass(hint) else tuple(sorted(value))
    if isinstance(value, list):
        return tuple(_core(part, get_args(hint)[0]) for part in value)
    if isinstance(value, dict):
        return tuple(sorted(value.items()))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    return float("inf") if hint is float and value == UNLIMITED_WORD else value


def _tree_value(value: Any, hint: Any, *, omit_empty: bool) -> TreeValue:
    if is_dataclass(value):
        return tree_of(value, omit_empty=omit_empty)
    if isinstance(value, tuple):
        parts = get_args(hint)
        hints = [parts[0]] * len(value) if parts[-1] is Ellipsis else parts
        items = [_tree_value(item, part, omit_empty=omit_empty) for item, part in zip(value, hints, strict=True)]
        return dict(items) if _is_pair_with_key(parts[0]) else items  # type: ignore[arg-type]
    if isinstance(value, Enum):
        return str(value)
    return number_or_unlimited(value) if hint is float and value is not None else value


def _is_pair_with_key(hint: Any) -> bool:
    key, *_ = (*get_args(hint), None)
    return isinstance(key, type) and issubclass(key, str)
