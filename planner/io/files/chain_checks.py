"""Whether the stages of a pipeline are a chain over all layers, on devices that exist."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.io.documents.complaints import PathStep, nearest, shorten

LocatedFault = tuple[tuple[PathStep, ...], str]
"""Place in the file, and what is wrong there."""
StageFault = tuple[tuple[int, str], str]
"""Number of a stage and its key, and what is wrong there."""


class ChainedEntry(Protocol):
    """What every stage of a file states about its layers."""

    start: int
    stop: int
    first_layer: str
    last_layer: str


def chain_faults(stages: Sequence[ChainedEntry], names: Sequence[str]) -> Iterator[StageFault]:
    """Every layer is in exactly one stage, in order, and layer names match the profile."""
    start = 0
    for index, stage in enumerate(stages):
        if stage.start != start:
            yield (index, "start"), f"must be {start}, got {stage.start}"
        if not stage.start < stage.stop <= len(names):
            yield (index, "stop"), f"must be above start and at most {len(names)}, got {stage.stop}"
            return
        ends = ("first_layer", names[stage.start]), ("last_layer", names[stage.stop - 1])
        for key, expected in ends:
            if (name := getattr(stage, key)) != expected:
                rule = f"must be {shorten(expected)} according to start and stop, got {shorten(name)}"
                yield (index, key), rule
        start = stage.stop
    if start != len(names):
        yield (len(stages) - 1, "stop"), f"must be {len(names)}, the number of layers, got {start}"


def device_faults(places: Sequence[tuple[tuple[PathStep, ...], str]], cluster: Cluster) -> Iterator[LocatedFault]:
    """Every device, given with its place, exists and is used once."""
    known, taken = {device.name for device in cluster.devices()}, set[str]()
    for place, name in places:
        if name not in known:
            yield place, f"{shorten(name)} is not a device of cluster {shorten(cluster.name)}{nearest(name, known)}"
        elif name in taken:
            yield place, f"{shorten(name)} is used twice"
        taken.add(name)
