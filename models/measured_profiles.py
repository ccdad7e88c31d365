"""Catalogue models with measured costs."""

from pathlib import Path

from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.messages.names import unknown_name
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.precision import Precision

MEASURED_ON = "@"
"""Measured profiles are called MODEL@DEVICE."""
FOLDER = Path(__file__).parent / "measured"


def measured_names() -> tuple[str, ...]:
    """Names of all measured profiles of the catalogue, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob(f"*{MEASURED_ON}*.json")))


def is_measured(name: str) -> bool:
    """Whether a name has the form of a measured profile's."""
    return MEASURED_ON in name


def measured_path(name: str) -> Path:
    """The file of a measured profile.

    Raises
    ------
    BadInputError
        If there is none of that name; the nearest name is suggested.
    """
    known = measured_names()
    if name not in known:
        raise unknown_name("measured model", name, known)
    return FOLDER / f"{name}.json"


def measured_model(name: str, *, precision: Precision | None, sequence_length: int | None) -> ModelProfile:
    """A measured profile, whose precision and sequence length are fixed.

    Raises
    ------
    BadInputError
        If there is none of that name, or another precision or sequence length is requested.
    """
    from stagecut.planner.io.files.profile import read_profile

    model = read_profile(measured_path(name))
    owner = f"model {name!r}"
    for field, own, asked in (
        ("precision", str(model.precision), precision and str(precision)),
        ("sequence_length", model.sequence_length, sequence_length),
    ):
        require(asked in (None, own), owner, field, f"{own}, or omitted", asked)
    return model
