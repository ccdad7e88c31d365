"""Models and clusters by catalogue name or from a file."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from stagecut.models import (
    build_cluster,
    build_model,
    cluster_names,
    is_measured,
    measured_names,
    measured_path,
    model_names,
)
from stagecut.models.clusters.catalogue import CATALOGUE
from stagecut.models.clusters.description import is_described
from stagecut.models.configurations.entry import (
    configuration_entry,
    configured_precision,
    holds_configuration,
    is_configuration,
)
from stagecut.planner.cli.process.notes import note
from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.files.cluster import read_cluster
from stagecut.planner.io.files.profile import read_profile

T = TypeVar("T")

CLUSTER_HELP = "Catalogue cluster, cluster file, or a description such as '2x4 rtx-4090 pcie4x16 eth25'."
FILE_SUFFIXES = (".json", ".yaml", ".yml")


def is_file_name(argument: str) -> bool:
    """Whether the argument means a file: its form says so, or there is such a file or a folder of a model."""
    try:
        path = Path(argument)
        found = path.is_file() or (argument != "" and holds_configuration(path))
        return "/" in argument or path.suffix.lower() in FILE_SUFFIXES or found
    except (OSError, ValueError):  # not a valid file name
        return False


def is_profile(argument: str) -> bool:
    """Whether the argument means a profile with a precision of its own, which a configuration of a model has not."""
    return (is_file_name(argument) or is_measured(argument)) and not is_configuration(argument)


def default_precision(argument: str) -> Precision:
    """That of a configuration file, otherwise that of the catalogue; for what is no profile."""
    return configured_precision(argument) if _is_configured(argument) else Precision.FP16


def load_profile(path: str, *, sequence_length: int | None, to_plan: bool = False) -> ModelProfile:
    """A model profile from a file, or a measured one of the catalogue; see :mod:`stagecut.planner.io.files.profile`.

    Raises a BadInputError if there is none, or for faults and another sequence length than the one asked for.
    """
    in_catalogue = is_measured(path) and not is_file_name(path)
    model = read_profile(_found(path, measured_names(), measured_path) if in_catalogue else path, to_plan=to_plan)
    if sequence_length not in (None, model.sequence_length):
        stated = "no number of" if model.sequence_length is None else str(model.sequence_length)
        rule = f"states {stated} tokens per sample, but --sequence-length asks for {sequence_length}"
        raise BadInputError(f"{path}: {rule}; leave the option out, or make a profile for that length")
    return model


def catalogue_model(name: str, *, precision: Precision, sequence_length: int | None) -> ModelProfile:
    """A model of the catalogue or of a configuration; raises a BadInputError for an unknown one or sequence length."""
    if _is_configured(name):
        entry = configuration_entry(name)
        if sequence_length is None:
            note(f"{name}: {entry.default_sequence} tokens per sample; --sequence-length sets another number")
        return entry.profile(precision=precision, sequence_length=sequence_length)
    build = partial(build_model, precision=precision, sequence_length=sequence_length)
    return _found(name, model_names(), build)


def load_cluster(argument: str) -> Cluster:
    """A cluster of the catalogue, of a file or described; raises a BadInputError for unknown names and faulty files."""
    if is_file_name(argument):
        return read_cluster(argument, CATALOGUE)
    return build_cluster(argument) if is_described(argument) else _found(argument, cluster_names(), build_cluster)


def _is_configured(argument: str) -> bool:
    return is_file_name(argument) and is_configuration(argument)


def _found(name: str, known: tuple[str, ...], find: Callable[[str], T]) -> T:
    """What the catalogue holds; for an unknown name the message adds that there is no such file either."""
    try:
        return find(name)
    except BadInputError as fault:
        if name.partition(":")[0] in known:
            raise
        raise BadInputError(f"{fault} (and there is no such file)") from None
