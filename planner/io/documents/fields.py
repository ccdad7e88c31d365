"""Types of values in files, with their ranges."""

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, TypeAdapter, ValidationError

from stagecut.planner.io.documents.descriptions import field_docstrings

MAX_NUMBER = 1e30
"""Keeps sums and products of inputs finite."""
MIN_POSITIVE = 1e-30
MAX_COUNT = 1_000_000_000

Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\p{Cc}\p{Zl}\p{Zp}]*$")]
"""Invisible characters other than controls are accepted; they are escaped where they are shown."""
KEY_PATTERN = r"^[^\p{Cc}\p{Zl}\p{Zp}]{1,100}$"
Key = Annotated[str, Field(pattern=KEY_PATTERN)]
"""A name used as the key of a mapping."""
Text = Annotated[str, Field(max_length=1000, pattern=r"^(?:[^\p{Cc}]|[\n\t])*$")]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
SmallCount = Annotated[int, Field(ge=1, le=100_000)]
Index = Annotated[int, Field(ge=0, le=MAX_COUNT)]
NonNegative = Annotated[float, Field(ge=0, le=MAX_NUMBER)]
Positive = Annotated[float, Field(ge=MIN_POSITIVE, le=MAX_NUMBER)]
PositiveOrUnlimited = Positive | Literal["unlimited"]
Fraction = Annotated[float, Field(ge=MIN_POSITIVE, le=1)]
SIZE_PATTERN = r"^[1-9][0-9]{0,8}$"
Size = Annotated[str, Field(pattern=SIZE_PATTERN)]
"""A micro-batch size as a key; JSON keys are always text."""
GROUP_SIZE_PATTERN = r"^(?:[2-9]|[1-9][0-9]{1,4})$"
GroupSize = Annotated[str, Field(pattern=GROUP_SIZE_PATTERN)]
"""Number of devices in a group, as a key."""
SchemaVersion = Annotated[int, Field(ge=1, le=1)]


class Entry(BaseModel):
    """A mapping in a file: no unknown keys, no type coercion, no infinities."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    mirrored: ClassVar[type | None] = None
    """The dataclass that the entry mirrors."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe every field by the docstring below it, here, in a base or in the dataclass, in the words of JSON."""
        schema = handler(core_schema)
        properties, described = handler.resolve_ref_schema(schema).get("properties", {}), cls._descriptions()
        for name, field in cls.model_fields.items():
            if name in described:
                properties[field.alias or name]["description"] = described[name]
        return schema

    @classmethod
    def _descriptions(cls) -> dict[str, str]:
        told: dict[str, str] = {}
        if cls.mirrored is not None:
            told = {name: re.sub(r"\bNone\b", "null", text) for name, text in field_docstrings(cls.mirrored).items()}
        for kind in reversed(cls.__mro__):
            if issubclass(kind, Entry):
                told |= field_docstrings(kind)
        return told


class FileEntry(Entry):
    """The top level of a file."""

    schema_version: SchemaVersion = Field(alias="schema")
    """Version of the file format: 1."""


def is_name(text: str) -> bool:
    """Whether the text is a valid :data:`Name`."""
    try:
        _NAME.validate_python(text, strict=True)
    except ValidationError:
        return False
    return True


_NAME: TypeAdapter[str] = TypeAdapter(Name)
