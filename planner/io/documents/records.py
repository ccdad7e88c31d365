"""Core dataclasses built from checked entries and written as trees, field by field.

Entries and dataclasses give a field the same name, so only fields that differ have to be spelled out.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from stagecut.planner.io.documents.canonical import UNLIMITED_WORD, TreeValue, number_or_unlimited
from stagecut.planner.io.documents.fields import Entry

T = TypeVar("T")
Convert = Callable[[Any], Any]


class _Field(NamedTuple):
    """How a field of a dataclass is read and written; worked out once, since a profile has thousands of them."""

    name: str
    read: Convert
    write: Convert
    optional: bool


def from_entry(kind: Callable[..., T], entry: Entry, **others: object) -> T:
    """Build a dataclass from an entry with fields of the same names; raises a BadInputError if it rejects a value.

    Nested entries become dataclasses, lists tuples, mappings pairs in order of their keys, and the word
    `unlimited` infinity. Null, where the dataclass accepts none, means the dataclass's default. `others`
    are the fields that the entry does not hold in this form.
    """
    values = dict(others)
    for name, read, _, optional in _fields(kind):
        value = None if name in others else getattr(entry, name, None)
        if value is not None:
            values[name] = read(value)
        elif optional:
            values.setdefault(name, None)
    return kind(**values)


def tree_of(record: Any, *, without: tuple[str, ...] = (), omit_empty: bool = False) -> dict[str, TreeValue]:
    """The inverse of :func:`from_entry`: a dataclass as a file holds it, without some fields.

    `omit_empty` leaves out what is None, an empty string or an empty tuple, here and in nested dataclasses.
    """
    tree: dict[str, TreeValue] = {}
    for name, _, write, _ in _fields(record.__class__, without, omit_empty):
        value = getattr(record, name)
        if value or not omit_empty or value not in (None, "", ()):
            tree[name] = None if value is None else write(value)
    return tree


@cache
def _fields(kind: Any, without: tuple[str, ...] = (), omit_empty: bool = False) -> tuple[_Field, ...]:
    hints = get_type_hints(kind)
    found = []
    for name in (field.name for field in fields(kind) if field.name not in without):
        parts = get_args(hints[name])
        others = [part for part in parts if part is not NoneType]
        optional = len(others) < len(parts)
        hint = others[0] if optional and len(others) == 1 else hints[name]
        found.append(_Field(name, *_conversion(hint, omit_empty=omit_empty), optional))
    return tuple(found)


def _conversion(hint: Any, *, omit_empty: bool) -> tuple[Convert, Convert]:
    build: Callable[..., object] = hint
    if hint is float:
        return (lambda value: float("inf") if value == UNLIMITED_WORD else value), number_or_unlimited
    if get_origin(hint) is tuple:
        return _tuple_conversion(get_args(hint), omit_empty=omit_empty)
    if is_dataclass(hint):
        return partial(from_entry, build), partial(tree_of, omit_empty=omit_empty)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return build, str
    return (lambda value: value), (lambda value: value)


def _tuple_conversion(parts: tuple[Any, ...], *, omit_empty: bool) -> tuple[Convert, Convert]:
    if parts[-1] is not Ellipsis:
        reads, writes = zip(*(_conversion(part, omit_empty=omit_empty) for part in parts), strict=True)
        return (
            lambda value: tuple(read(item) for read, item in zip(reads, value, strict=True)),
            lambda value: [write(item) for write, item in zip(writes, value, strict=True)],
        )
    read, write = _conversion(parts[0], omit_empty=omit_empty)
    key = next(iter(get_args(parts[0])), None)
    if isinstance(key, type) and issubclass(key, str):
        return (
            lambda value: tuple(sorted(map(read, value.items() if isinstance(value, Mapping) else value))),
            lambda value: dict(map(write, value)),
        )
    return (lambda value: tuple(map(read, value))), (lambda value: list(map(write, value)))
