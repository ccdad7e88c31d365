"""Models and clusters by their name in the catalogue or from a file."""

from pathlib import Path

from stagecut.models import (
    build_cluster,
    build_model,
    cluster_names,
    is_measured,
    measured_names,
    measured_path,
    model_names,
)
from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.files.cluster import read_cluster
from stagecut.planner.io.files.profile import read_profile

FILE_SUFFIXES = (".json", ".yaml", ".yml")


def is_file_name(argument: str) -> bool:
    """Whether the argument means a file: it has a folder or the suffix of one, or there is such a file."""
    try:
        return "/" in argument or Path(argument).suffix.lower() in FILE_SUFFIXES or Path(argument).is_file()
    except (OSError, ValueError):  # no name a file can have
        return False


def is_profile(argument: str) -> bool:
    """Whether the argument means a profile that counts in a precision of its own: a file, or a measured one."""
    return is_file_name(argument) or is_measured(argument)


def load_profile(path: str, *, sequence_length: int | None, to_plan: bool = False) -> ModelProfile:
    """A model profile as the file holds it, or a measured one of the catalogue.

    Parameters
    ----------
    to_plan
        See :func:`planner.io.files.profile.read_profile`.

    Raises
    ------
    BadInputError
        If there is none, the file has faults, or it states another sequence length than the one asked for.
    """
    file = _measured(path) if is_measured(path) and not is_file_name(path) else path
    model = read_profile(file, to_plan=to_plan)
    if sequence_length not in (None, model.sequence_length):
        stated = "no number of" if model.sequence_length is None else str(model.sequence_length)
        rule = f"states {stated} tokens per sample, --sequence-length asks for {sequence_length}"
        raise BadInputError(f"{path}: {rule}; leave the option out, or make a profile for that length")
    return model


def catalogue_model(name: str, *, precision: Precision, sequence_length: int | None) -> ModelProfile:
    """A model of the catalogue.

    Raises
    ------
    BadInputError
        If there is none of that name, or it cannot have that sequence length.
    """
    try:
        return build_model(name, precision=precision, sequence_length=sequence_length)
    except BadInputError as fault:
        raise _also_no_file(fault, name, model_names()) from None


def _measured(name: str) -> Path:
    try:
        return measured_path(name)
    except BadInputError as fault:
        raise _also_no_file(fault, name, measured_names()) from None


def load_cluster(argument: str) -> Cluster:
    """A cluster of the catalogue or from a file.

    Raises
    ------
    BadInputError
        If there is neither, or the file has faults.
    """
    if is_file_name(argument):
        return read_cluster(argument)
    try:
        return build_cluster(argument)
    except BadInputError as fault:
        raise _also_no_file(fault, argument, cluster_names()) from None


def _also_no_file(fault: BadInputError, name: str, known: tuple[str, ...]) -> BadInputError:
    """The fault, saying for a name that the catalogue does not have that it is no file either."""
    if name.partition(":")[0] in known:
        return fault
    return BadInputError(f"{fault} (and there is no such file)")
