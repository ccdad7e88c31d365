"""An entry that mirrors a dataclass accepts what the dataclass holds, and describes it in the same words."""

from dataclasses import dataclass

import pytest
from pydantic import ValidationError

from stagecut.planner.core.precision import Precision
from stagecut.planner.io.documents.fields import Entry, Index
from stagecut.planner.io.documents.mirrors import mirrors


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel."""

    spokes: int
    """Number of spokes."""


@dataclass(frozen=True, kw_only=True)
class Cart:
    """A cart with wheels."""

    name: str
    """Name of the cart."""
    wheels: tuple[Wheel, ...]
    """Its wheels."""
    load_bytes: float = 0.0
    """Load in bytes."""
    gear: int | None = None
    """Gear; None if it has none."""
    sizes: tuple[int, ...] = (1, 2)
    """Allowed sizes."""
    precision: Precision = Precision.FP16
    """Number format."""
    secret: str = ""


@mirrors(Wheel)
class WheelEntry(Entry):
    spokes: Index


@mirrors(Cart, without=("secret",))
class CartEntry(Entry):
    pass


CART = {"name": "a", "wheels": [{"spokes": 0}]}


def test_defaults_are_those_of_the_dataclass():
    entry = CartEntry.model_validate(CART | {"precision": "bf16"})
    assert (entry.load_bytes, entry.gear, entry.sizes, entry.precision) == (0.0, None, [1, 2], Precision.BF16)


@pytest.mark.parametrize(
    "wrong", [{"load_bytes": -1.0}, {"name": ""}, {"wheels": []}, {"gear": 0}, {"sizes": []}, {"secret": "x"}]
)
def test_values_out_of_range_are_rejected(wrong):
    with pytest.raises(ValidationError):
        CartEntry.model_validate(CART | wrong)


def test_docstrings_become_descriptions_and_none_becomes_null():
    schema = CartEntry.model_json_schema()
    assert schema["description"] == "A cart with wheels."
    assert schema["properties"]["gear"]["description"] == "Gear; null if it has none."
    wheel = schema["$defs"]["WheelEntry"]
    assert wheel["properties"]["spokes"] == {
        "description": "Number of spokes.",
        "maximum": 1_000_000_000,
        "minimum": 0,
        "title": "Spokes",
        "type": "integer",
    }
