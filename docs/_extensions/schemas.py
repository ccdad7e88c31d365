"""The reference of files, from the JSON Schemas that pydantic makes."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from stagecut.planner.io.files.schema import KINDS, json_schema

Schema = Mapping[str, Any]
LIMITS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
COUNTS = {"minItems": "at least", "maxItems": "at most"}


def schema_reference() -> str:
    """A section for every kind of file, and in it one for every object of such files."""
    return "".join(_kind(kind) for kind in KINDS)


def _kind(kind: str) -> str:
    schema: Any = json_schema(kind)
    parts = [f"## {kind.capitalize()} files", schema.get("description", "")]
    if "properties" in schema:
        parts.append(_table(kind, schema))
    else:
        parts.append(f"One of: {_type(kind, schema)}.")
    for name, inner in schema.get("$defs", {}).items():
        parts += [f"({_anchor(kind, name)})=", f"### {_title(name).capitalize()}", _prose(inner.get("description", ""))]
        parts.append(_table(kind, inner) if "properties" in inner else f"{_type(kind, inner)}.".capitalize())
    return "\n\n" + "\n\n".join(parts) + "\n"


def _table(kind: str, schema: Schema) -> str:
    required = schema.get("required", ())
    rows = (_row(kind, key, value, required=key in required) for key, value in schema["properties"].items())
    return "\n".join(("| key | value | default | meaning |", "|---|---|---|---|", *rows))


def _row(kind: str, key: str, value: Schema, *, required: bool) -> str:
    default = "required" if required else f"`{json.dumps(value.get('default'))}`"
    cells = f"`{key}`", _type(kind, value), default, _prose(value.get("description", ""))
    return f"| {' | '.join(cells)} |"


def _type(kind: str, value: Schema) -> str:
    """What is accepted, in words."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{_title(name)}](#{_anchor(kind, name)})"
    if "enum" in value or "const" in value:
        return ", ".join(f"`{each}`" for each in value.get("enum", (value.get("const"),)))
    choices = value.get("anyOf") or value.get("oneOf")
    if choices:
        return " or ".join(dict.fromkeys(_type(kind, each) for each in choices))
    return ", ".join((_name(kind, value), *_limits(value)))


def _name(kind: str, value: Schema) -> str:
    if value.get("type") == "array":
        inner = value.get("prefixItems") or [value.get("items", {})]
        return "list of " + ", ".join(dict.fromkeys(_type(kind, each) for each in inner))
    if value.get("type") == "object" and isinstance(value.get("additionalProperties"), Mapping):
        return f"by name, {_type(kind, value['additionalProperties'])}"
    return {"null": "nothing", None: "anything"}.get(value.get("type"), str(value.get("type")))


def _limits(value: Schema) -> Iterator[str]:
    if "minimum" in value and value["minimum"] == value.get("maximum"):
        yield f"{value['minimum']}"
        return
    for key, sign in LIMITS.items():
        if key in value:
            yield f"{sign} {value[key]:g}".replace("<", r"\<")
    for key, words in COUNTS.items():
        if key in value:
            yield f"{words} {value[key]}"


def _anchor(kind: str, name: str) -> str:
    return f"{kind}-{name.lower()}"


def _title(name: str) -> str:
    """`DeviceTypeEntry` as `device type`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name.removesuffix("Entry")).lower()


def _prose(text: str) -> str:
    return re.sub(r"([<*\[\]|])", r"\\\1", text.replace("\n", " "))
