"""Entries of files made from the dataclasses that they are read into."""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import Field, create_model

from stagecut.planner.io.documents.fields import Count, Entry, Key, Name, NonNegative, Text

E = TypeVar("E", bound=Entry)
_TYPES: dict[Any, Any] = {
    bool: bool,
    float: NonNegative,
    int: Count,
    str: Name,
    tuple[int, ...]: Annotated[list[Count], Field(min_length=1, max_length=1000)],
    tuple[tuple[str, str], ...]: dict[Key, Text],
}
"""Types of values in files by those of fields; an entry that needs another one declares the field itself."""
_ENTRIES: dict[Any, type[Entry]] = {}
"""Entries by the dataclass that they mirror."""


def mirrors(kind: type, *, without: tuple[str, ...] = ()) -> Callable[[type[E]], type[E]]:
    """Give an entry the fields of a dataclass, with their defaults and, as descriptions, their docstrings.

    A field that the entry declares itself keeps its type, default and description, if it has one.
    """
    hints = get_type_hints(kind)

    def completed(entry: type[E]) -> type[E]:
        added: dict[str, Any] = {}
        for field in fields(kind):
            if field.name not in entry.model_fields and field.name not in without:
                default = list(field.default) if isinstance(field.default, tuple) else field.default
                added[field.name] = (_in_file(hints[field.name]), ... if default is MISSING else default)
        made = create_model(entry.__name__, __base__=entry, __module__=entry.__module__, **added)
        made.__doc__, made.mirrored = entry.__doc__ or kind.__doc__, kind
        _ENTRIES[kind] = made
        return made

    return completed


def _in_file(hint: Any) -> Any:
    """The type of a value in a file, from that of the field of a dataclass."""
    if hint in _TYPES:
        return _TYPES[hint]
    if is_dataclass(hint):
        return _ENTRIES[hint]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Annotated[hint, Field(strict=False)]
    item: Any = _in_file(get_args(hint)[0])
    return Annotated[list[item], Field(min_length=1)] if get_origin(hint) is tuple else item | None
