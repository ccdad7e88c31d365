"""Input and output of the readers."""

from dataclasses import dataclass
from enum import StrEnum

from stagecut.planner.chains.chain import chain_of
from stagecut.planner.chains.task_graph import TaskGraph
from stagecut.planner.core.model import ModelProfile, TimeTable
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.units import MS, US

MANY_LAYERS = 200
FORWARD_SHARE = 1 / 3
"""Fraction of the total time, as if a backward took twice the operations."""


class TimeUnit(StrEnum):
    """Unit of the times in a file that does not state it."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"

    @property
    def seconds(self) -> float:
        """One unit in seconds."""
        return {TimeUnit.SECONDS: 1.0, TimeUnit.MILLISECONDS: MS, TimeUnit.MICROSECONDS: US}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the user says about a file."""

    name: str
    """Name of the model."""
    device_type: str
    """The profile's name for the devices that the file was measured on."""
    micro_batch: int = 1
    """Samples to which the times and bytes in the file refer."""
    time_unit: TimeUnit
    precision: Precision = Precision.FP32
    link_bytes_per_s: float | None = None
    """Converts transfer times into bytes, in files without bytes."""
    keep_nodes: bool = False
    """Leave every node a layer of its own."""
    num_layers: tuple[int, ...] | None = None
    """Layers of the model by kind, in files that state times of one layer of each kind only."""
    max_layers: int | None = None
    """Merge neighbours until at most this many layers are left."""

    def times(self, forward_s: float, backward_s: float, *, tensor_parallel: int = 1) -> TimeTable:
        """Times measured on the devices of the file at its micro-batch size."""
        return TimeTable(
            device_type=self.device_type,
            tensor_parallel=tensor_parallel,
            samples=(self.micro_batch,),
            forward_s=(forward_s,),
            backward_s=(backward_s,),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A profile and the assumptions behind it."""

    profile: ModelProfile
    num_nodes: int
    """Nodes in the file."""
    notes: tuple[str, ...] = ()


def converted(graph: TaskGraph, choices: Choices, *, num_nodes: int, notes: tuple[str, ...]) -> Converted:
    """Linearise the graph of a file."""
    profile = chain_of(graph, precision=choices.precision, keep_nodes=choices.keep_nodes, max_layers=choices.max_layers)
    if profile.num_layers > MANY_LAYERS and choices.max_layers is None:
        notes = (
            *notes,
            f"{profile.num_layers} layers make searches slow; --max-layers {MANY_LAYERS} merges neighbours",
        )
    if (num_parts := graph.num_components) > 1:
        parts = f"the graph has {num_parts} parts that no edge connects"
        notes = (*notes, f"{parts}; make sure that no edge is missing from the file")
    return Converted(profile=profile, num_nodes=num_nodes, notes=notes)


def micro_batch_note(choices: Choices, what: str) -> str:
    """A note on what the times and bytes of the file are taken to refer to."""
    samples = "1 sample" if choices.micro_batch == 1 else f"{choices.micro_batch} samples"
    return f"times and bytes refer to {what}, taken as {samples}; set its size with --micro-batch"
