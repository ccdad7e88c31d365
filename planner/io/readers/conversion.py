"""What a reader is told, and what it gives back."""

from dataclasses import dataclass
from enum import StrEnum

from stagecut.planner.chains.chain import chain_of
from stagecut.planner.chains.task_graph import TaskGraph
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.units import MS, US

MANY_LAYERS = 200


class TimeUnit(StrEnum):
    """Unit of the times of a file that does not state it."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"

    @property
    def seconds(self) -> float:
        """Seconds of one."""
        return {TimeUnit.SECONDS: 1.0, TimeUnit.MILLISECONDS: MS, TimeUnit.MICROSECONDS: US}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a file leaves open."""

    name: str
    """Of the model."""
    device_type: str
    """What the profile calls the devices that the file was measured on."""
    micro_batch: int = 1
    """Samples that the times and bytes of the file are for."""
    time_unit: TimeUnit
    precision: Precision = Precision.FP32
    link_bytes_per_s: float | None = None
    """Where a file has seconds of transfers in place of bytes."""
    keep_nodes: bool = False
    """Leave every node a layer of its own."""
    max_layers: int | None = None
    """Merge neighbours until there are no more layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A profile, and what was assumed to get it."""

    profile: ModelProfile
    num_nodes: int
    """Nodes of the file."""
    notes: tuple[str, ...] = ()


def converted(graph: TaskGraph, choices: Choices, *, num_nodes: int, notes: tuple[str, ...]) -> Converted:
    """The graph of a file as a chain of layers."""
    profile = chain_of(graph, precision=choices.precision, keep_nodes=choices.keep_nodes, max_layers=choices.max_layers)
    if profile.num_layers > MANY_LAYERS and choices.max_layers is None:
        notes = (
            *notes,
            f"{profile.num_layers} layers make searches long; --max-layers {MANY_LAYERS} merges neighbours",
        )
    if (num_parts := graph.num_components) > 1:
        parts = f"the graph is in {num_parts} parts that no edge joins"
        notes = (*notes, f"{parts}: nothing passes between them; see that no edge is missing from the file")
    return Converted(profile=profile, num_nodes=num_nodes, notes=notes)


def micro_batch_note(choices: Choices, what: str) -> str:
    """Whose times the file has, in the words of the options."""
    samples = "1 sample" if choices.micro_batch == 1 else f"{choices.micro_batch} samples"
    return f"times and bytes are those of {what}, counted as {samples}; --micro-batch says how many it has"
