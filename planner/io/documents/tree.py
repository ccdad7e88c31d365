"""JSON or YAML text as a tree whose nodes know their lines."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from stagecut.planner.io.documents.canonical import TreeValue
from stagecut.planner.io.documents.complaints import Complaints, Where, shorten
from stagecut.planner.io.documents.input_file import read_text

try:
    from yaml import CSafeLoader as Loader
except ImportError:
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

MAX_DEPTH = 50
TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
TOO_DEEP_FOR_LIBYAML = "exceeded maximum nesting depth"
"""What its newer versions say of some thousand levels, before the first is read."""
MAX_VALUES = 500_000

Scalar = bool | int | float | str | None

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "Infinity"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF", "-Infinity"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN", "NaN"), float("nan")),
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_ONLY_IN_JSON = {
    ord("\t"): " ",
    **{code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF)},
}
"""Tabs between values, and characters in strings that YAML forbids or treats as line breaks."""
_DEPTH_CHANGES: dict[type, int] = {
    **dict.fromkeys((yaml.SequenceStartEvent, yaml.MappingStartEvent), 1),
    **dict.fromkeys((yaml.SequenceEndEvent, yaml.MappingEndEvent), -1),
}
_SURROGATES = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value with its place in the tree and its line in the file."""

    line: int
    """Counted from 1; the line of the key if there is one."""
    where: Where
    value: "Scalar | tuple[Node, ...] | Mapping[str, Node]"
    text: str = ""
    """A plain scalar as written in the file."""

    def at(self, *steps: str | int) -> "Node | None":
        """The node reached by these steps, or None."""
        node: Node | None = self
        for step in steps:
            if node is None:
                return None
            node = node._child(step)
        return node

    def items(self, *steps: str | int) -> "tuple[Node, ...]":
        """Elements of the list reached by these steps; empty if there is no list."""
        node = self.at(*steps)
        return node.value if node is not None and isinstance(node.value, tuple) else ()

    def keys(self, *steps: str | int) -> tuple[str, ...]:
        """Keys of the mapping reached by these steps; empty if there is no mapping."""
        node = self.at(*steps)
        return tuple(node.value) if node is not None and isinstance(node.value, Mapping) else ()

    def plain(self) -> object:
        """The value as dictionaries, lists and scalars."""
        if isinstance(self.value, tuple):
            return [node.plain() for node in self.value]
        if isinstance(self.value, Mapping):
            return {key: node.plain() for key, node in self.value.items()}
        return self.value

    @property
    def shown(self) -> str:
        """The value as quoted in messages."""
        if isinstance(self.value, tuple):
            return f"a list of {len(self.value)}" if self.value else "an empty list"
        if isinstance(self.value, Mapping):
            return "a mapping" if self.value else "an empty mapping"
        if self.value is None:
            return "nothing"
        return shorten(self.value) if isinstance(self.value, str) else self.text[:60]

    def _child(self, step: str | int) -> "Node | None":
        if isinstance(self.value, Mapping) and isinstance(step, str):
            return self.value.get(step)
        if isinstance(self.value, tuple) and isinstance(step, int) and 0 <= step < len(self.value):
            return self.value[step]
        return None


def node_of(value: TreeValue, *, line: int, where: Where) -> Node:
    """A value that stands for something on a line of the file."""
    if isinstance(value, Mapping):
        children = {key: node_of(child, line=line, where=(*where, key)) for key, child in value.items()}
        return Node(line=line, where=where, value=children)
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = (node_of(item, line=line, where=(*where, index)) for index, item in enumerate(value))
        return Node(line=line, where=where, value=tuple(items))
    return Node(line=line, where=where, value=value, text="" if isinstance(value, str) else str(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file as a tree, with the faults found so far."""

    root: Node
    complaints: Complaints = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListLimit:
    """Maximum length of one top-level list; the elements of a longer one are counted, not kept."""

    key: str
    most: int
    rule: str
    """What the list must be, in the words of the message."""


def read_document(path: str | Path, *, limit: ListLimit | None = None) -> Document:
    """Read a JSON or YAML file; `limit` rejects one with too long a list before all of it is read.

    Raises a BadInputError if it cannot be read, or is not a single document with a mapping at the top level.
    """
    return parse_document(read_text(path), file=str(path), limit=limit)


def parse_document(text: str, *, file: str, limit: ListLimit | None = None) -> Document:
    """Read JSON or YAML text as :func:`read_document` does; `file` is its name in messages.

    JSON is read as a subset of YAML. Scalars follow the YAML 1.2 core schema: `1e9` is a number, `yes` and
    `off` are strings. Anchors, aliases, tags and repeated keys are faults.
    """
    complaints = Complaints(file)
    try:
        root = _Builder(yaml.parse(_json_as_yaml(text), Loader=Loader), complaints, limit).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if error.problem == TOO_DEEP_FOR_LIBYAML:
            complaints.stop(mark.line + 1 if mark else 1, TOO_DEEP)
        reason = (error.problem or str(error)).replace("\t", "\\t")
        complaints.stop(mark.line + 1 if mark else 1, f"neither JSON nor YAML: {reason}")
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # A character that YAML forbids, possibly escaped; the parser does not always say where.
        position = getattr(error, "position", 0)
        complaints.stop(text.count("\n", 0, position) + 1, f"neither JSON nor YAML: {getattr(error, 'reason', error)}")
    if not isinstance(root.value, Mapping):
        complaints.stop(root.line, f"must be a mapping of keys to values, got {root.shown}")
    return Document(root=root, complaints=complaints)


def complain_of_repetitions(complaints: Complaints, nodes: Iterable[Node | None], what: str) -> None:
    """Complain about every text or number that an earlier node already has, naming the line of the first."""
    seen: dict[object, Node] = {}
    for node in nodes:
        if node is None or not isinstance(node.value, int | str):
            continue
        first = seen.setdefault(node.value, node)
        if first is not node:
            complaints.add(node.line, node.where, f"{what} {node.shown} appears twice, first on line {first.line}")


def _json_as_yaml(text: str) -> str:
    """JSON rewritten where YAML would reject it or read it differently; line numbers stay the same."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    if not text.isascii() or "\t" in text or "\x7f" in text:
        text = text.translate(_ONLY_IN_JSON)
    return _SURROGATES.sub(_join_surrogates, text) if "\\u" in text else text


def _join_surrogates(match: re.Match[str]) -> str:
    high, low = int(match[2], 16), int(match[3], 16)
    return f"{match[1]}\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"


class _Builder:
    """Builds the tree from the parser's events, recursing at most MAX_DEPTH levels deep."""

    def __init__(self, events: Iterator[yaml.Event], complaints: Complaints, limit: ListLimit | None) -> None:
        self._events = events
        self._complaints = complaints
        self._limit = limit
        self._num_values = 0

    def document(self) -> Node:
        """Read the stream, which must hold a single document."""
        next(self._events)
        if isinstance(next(self._events), yaml.StreamEndEvent):
            self._complaints.stop(1, "is empty")
        root = self._node(next(self._events), ())
        next(self._events)
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            self._complaints.stop(_line(after), "expected a single document, but a second one begins here")
        return root

    def _node(self, event: yaml.Event, where: Where, *, key_line: int | None = None) -> Node:
        line = key_line or _line(event)
        self._count(line, where)
        self._refuse_extras(event, line, where)
        if isinstance(event, yaml.ScalarEvent):
            plain = event.implicit[0]
            value = _scalar(event.value) if plain else event.value
            return Node(line=line, where=where, value=value, text=event.value if plain else "")
        if isinstance(event, yaml.SequenceStartEvent):
            return Node(line=line, where=where, value=tuple(self._elements(where, line)))
        if isinstance(event, yaml.MappingStartEvent):
            return Node(line=line, where=where, value=self._mapping(where))
        return Node(line=line, where=where, value=None)

    def _elements(self, where: Where, line: int) -> Iterator[Node]:
        limit = self._limit if self._limit is not None and where == (self._limit.key,) else None
        for index in itertools.count():
            event = next(self._events)
            if isinstance(event, yaml.SequenceEndEvent):
                return
            if limit is not None and index == limit.most:
                self._complaints.stop(
                    line, f"{limit.key}: must be {limit.rule}, got {index + self._remaining(event):,}"
                )
            yield self._node(event, (*where, index))

    def _remaining(self, event: yaml.Event) -> int:
        """Number of elements from this event, the start of one, to the end of the list."""
        depth = num_elements = 0
        for each in itertools.chain([event], self._events):
            change = _DEPTH_CHANGES.get(type(each), 0)
            if depth + change < 0:
                break
            num_elements += depth == 0
            depth += change
        return num_elements

    def _mapping(self, where: Where) -> dict[str, Node]:
        children: dict[str, Node] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line = _line(event)
            if not isinstance(event, yaml.ScalarEvent):
                self._complaints.stop(line, "a key must be a plain scalar, got a list, a mapping or an alias")
            key = event.value
            self._refuse_extras(event, line, (*where, key))
            child = self._node(next(self._events), (*where, key), key_line=line)
            if key in children:
                first = children[key].line
                self._complaints.add(line, (*where, key), f"the key appears twice, first on line {first}")
            children.setdefault(key, child)
        return children

    def _count(self, line: int, where: Where) -> None:
        self._num_values += 1
        if self._num_values > MAX_VALUES:
            self._complaints.stop(line, f"more than {MAX_VALUES} values, the limit for a file")
        if len(where) > MAX_DEPTH:
            self._complaints.stop(line, TOO_DEEP)

    def _refuse_extras(self, event: yaml.Event, line: int, where: Where) -> None:
        if getattr(event, "anchor", None) is not None:
            self._complaints.add(
                line, where, "anchors (&name) and aliases (*name) are not supported; write the value out"
            )
        elif (tag := getattr(event, "tag", None)) is not None:
            self._complaints.add(line, where, f"tags such as {shorten(tag)} are not supported; remove the tag")


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 1


def _scalar(text: str) -> Scalar:
    """Parse a plain scalar; an integer beyond the range of floats becomes infinite."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text) and len(text) < 300:
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text
