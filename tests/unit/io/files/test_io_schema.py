"""JSON Schemas of the kinds of files."""

import pytest

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.io.files.schema import KINDS, json_schema


def _objects(schema):
    """Every schema of a mapping inside a schema."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for part in schema.values():
            yield from _objects(part)
    if isinstance(schema, list):
        for part in schema:
            yield from _objects(part)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_described(kind):
    fields = {
        (schema["title"], name): field
        for schema in _objects(json_schema(kind))
        for name, field in schema["properties"].items()
    }
    assert [name for name, field in fields.items() if not field.get("description")] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_quantity_states_its_unit(kind):
    units = {"_s": "second", "_bytes": "byte", "_flops": "operation", "_bytes_per_s": "bytes per second"}
    for schema in _objects(json_schema(kind)):
        for name, field in schema["properties"].items():
            unit = next((unit for ending, unit in units.items() if name.endswith(ending)), "")
            told = f"{field['description']} {schema.get('description', '')}".lower()
            assert unit in told, (schema["title"], name)


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_keys_are_forbidden_and_the_version_is_wanted(kind):
    schema = json_schema(kind)
    assert all(part["additionalProperties"] is False for part in _objects(schema))
    tops = [schema["$defs"][each["$ref"].rpartition("/")[2]] for each in schema.get("anyOf", ())] or [schema]
    assert all("schema" in top["required"] for top in tops)


def test_unknown_kind_is_refused_with_the_nearest():
    with pytest.raises(BadInputError, match="did you mean 'profile'"):
        json_schema("profiles")
