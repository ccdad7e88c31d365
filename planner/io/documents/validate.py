"""Validation of a tree against the schema of its kind."""

from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

from pydantic import ValidationError

from stagecut.planner.io.documents.complaints import Complaints, PathStep, Where, nearest
from stagecut.planner.io.documents.fields import GROUP_SIZE_PATTERN, KEY_PATTERN, SIZE_PATTERN, Entry
from stagecut.planner.io.documents.tree import Document, Node

E = TypeVar("E", bound=Entry)

_TELLTALE = {
    **{"plan solve --json": "history", "plan compare --json": "results", "plan explain --json": "what_if"},
    **{"run": "plan_hash", "profile": "layers", "cluster": "servers", "job": "global_batch", "plan": "inputs"},
}
"""A key that every file of the kind has, and that no later kind in this order knows."""

_KEY_WORDS = {
    SIZE_PATTERN: "a micro-batch size from 1 to 999999999",
    GROUP_SIZE_PATTERN: "a number of devices from 2 to 99999",
    KEY_PATTERN: "text of 1 to 100 printable characters",
}
"""What a key must be, by the pattern it has to match."""


def validate(document: Document, entry_type: type[E], *, kind: str) -> E | None:
    """The file as an entry; None, with complaints recorded, if it violates the schema.

    Raises a BadInputError if it is another kind of file.
    """
    root, complaints = document.root, document.complaints
    _refuse_other_kind(root, complaints, kind)
    try:
        return entry_type.model_validate(root.plain())
    except ValidationError as error:
        schema = _schema_of(entry_type)
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        places = [(_resolve(root, fault["loc"]), fault["type"], fault["loc"]) for fault in faults]
        # Deepest first: inside a union, the complaint about a part says more than the one about the whole.
        for node, fault, loc in sorted(places, key=lambda place: -len(place[0].where)):
            _complain(complaints, schema, node, fault, loc)
        return None


class Schema:
    """Answers, from the JSON Schema of a kind of file, what is accepted at a place in the tree."""

    def __init__(self, entry_type: type[Entry]) -> None:
        self._root = entry_type.model_json_schema()

    def accepted(self, where: Where) -> str:
        """What a value at that place must be, in words."""
        return _either(_words(option) for option in self._options(where) if option.get("type") != "null")

    def accepted_key(self, where: Where) -> str:
        """What a key at that place must be, in words."""
        for option in self._options(where[:-1]):
            if "patternProperties" in option:
                (pattern,) = option["patternProperties"]
                return _KEY_WORDS[pattern]
            names = self._expand(option.get("propertyNames", {}))
            if "enum" in names[0]:
                return _words(names[0])
        return _KEY_WORDS[KEY_PATTERN]

    def keys(self, where: Where) -> list[str]:
        """Keys of the mapping at that place."""
        return [key for option in self._options(where) for key in option.get("properties", ())]

    def choices(self, where: Where) -> list[str]:
        """Words accepted at that place."""
        return [word for option in self._options(where) for word in (*option.get("enum", ()), option.get("const", ""))]

    def _options(self, where: Where) -> list[dict[str, Any]]:
        found = self._expand(self._root)
        for step in where:
            found = [option for parent in found for child in _children(parent, step) for option in self._expand(child)]
        return found

    def _expand(self, schema: dict[str, Any]) -> list[dict[str, Any]]:
        """The schema with references resolved, as a list of alternatives."""
        if "$ref" in schema:
            return self._expand(self._root["$defs"][schema["$ref"].rpartition("/")[2]])
        for key in ("anyOf", "oneOf", "allOf"):
            if key in schema:
                return [option for part in schema[key] for option in self._expand(part)]
        return [schema]


def _refuse_other_kind(root: Node, complaints: Complaints, kind: str) -> None:
    keys = root.keys()
    found = [other for other, key in _TELLTALE.items() if key in keys]
    if found and (kind not in found or ("run" in found and kind != "run")):
        complaints.stop(root.line, f"expected a {kind} file, got a {found[0]} file")


def _resolve(root: Node, loc: tuple[PathStep, ...]) -> Node:
    """The deepest node on the path; steps that name an alternative of a union are skipped."""
    node = root
    for step in loc:
        node = node.at(step) or node
    return node


def _complain(complaints: Complaints, schema: Schema, node: Node, fault: str, loc: tuple[PathStep, ...]) -> None:
    line, where = node.line, node.where
    if fault == "missing":
        where = (*where, loc[-1])
        complaints.add(line, where, f"is missing, must be {schema.accepted(where)}")
    elif fault == "extra_forbidden":
        known = schema.keys(where[:-1])
        hint = nearest(str(where[-1]), known) or f", accepted: {', '.join(sorted(known))}"
        complaints.add(line, where, f"unknown key{hint}")
    elif loc[-1] == "[key]":
        complaints.add(line, where, f"the key must be {schema.accepted_key(where)}, got {str(where[-1])[:60]!r}")
    else:
        hint = nearest(node.value, schema.choices(where)) if isinstance(node.value, str) else ""
        complaints.add(line, where, f"must be {schema.accepted(where)}, got {node.shown}{_quoting(schema, node)}{hint}")


def _quoting(schema: Schema, node: Node) -> str:
    wants_text = schema.accepted(node.where).startswith("text")
    return f" (put it in quotes: '{node.text[:60]}')" if wants_text and node.text else ""


def _children(schema: dict[str, Any], step: PathStep) -> list[dict[str, Any]]:
    if isinstance(step, int):
        return [schema["items"]] if "items" in schema else []
    if step in schema.get("properties", {}):
        return [schema["properties"][step]]
    others = schema.get("additionalProperties")
    return [*schema.get("patternProperties", {}).values(), *([others] if isinstance(others, dict) else [])]


def _words(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return _either(repr(word) for word in schema["enum"])
    if "const" in schema:
        return repr(schema["const"])
    low, high = schema.get("minimum"), schema.get("maximum")
    span = f" from {low} to {high}" if low is not None else ""
    kind = str(schema.get("type", "a value"))
    words = {
        "integer": f"{low}" if low is not None and low == high else f"a whole number{span}",
        "number": f"a number{span}",
        "string": f"text of {schema.get('minLength', 0)} to {schema.get('maxLength')} printable characters",
        "boolean": "true or false",
        "array": _list_words(schema.get("minItems", 0), schema.get("maxItems")),
        "object": "a non-empty mapping" if schema.get("minProperties") else "a mapping",
    }
    return words.get(kind, kind)


def _list_words(least: int, most: int | None) -> str:
    if least == most:
        return f"a list of {least}"
    if least > 1:
        return f"a list of {least} or more"
    return "a non-empty list" if least else "a list"


def _either(parts: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(parts))


_schema_of = cache(Schema)
