"""Our own profile format, for merging layers."""

from dataclasses import replace

from stagecut.planner.chains.coarsening import coarsened, lost_times
from stagecut.planner.io.documents.tree import Document
from stagecut.planner.io.files.profile import profile_of
from stagecut.planner.io.readers.conversion import Choices, Converted


def read_own_profile(document: Document, choices: Choices) -> Converted:
    """The profile with at most as many layers, and under the name, that the choices say.

    Raises
    ------
    BadInputError
        With every fault of the file.
    """
    profile = profile_of(document)
    coarse = profile if choices.max_layers is None else coarsened(profile, choices.max_layers)
    notes = tuple(
        f"merged layers have no micro-batch size in common on {device_type}: its times were dropped"
        for device_type in lost_times(profile, coarse)
    )
    return Converted(
        profile=replace(coarse, name=choices.name or profile.name), num_nodes=profile.num_layers, notes=notes
    )
