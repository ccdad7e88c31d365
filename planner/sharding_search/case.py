"""A model on a mesh of devices, and what is trained."""

from dataclasses import dataclass

from stagecut.planner.core.cluster import DeviceType
from stagecut.planner.core.job import Optimizer
from stagecut.planner.core.messages.checks import require, require_count
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.sharding.mesh import Mesh


@dataclass(frozen=True, kw_only=True)
class ShardingCase:
    """What one search is about."""

    model: ModelProfile
    device: DeviceType
    """Type of all devices of the mesh."""
    mesh: Mesh
    optimizer: Optimizer
    micro_batch: int
    """Samples of a micro-batch of the whole mesh."""
    num_microbatches: int = 1
    """Micro-batches in an iteration, one after another."""

    def __post_init__(self) -> None:
        require_count("sharding", "micro_batch", self.micro_batch)
        require_count("sharding", "num_microbatches", self.num_microbatches)
        require(self.mesh.num_devices > 0, "sharding", "mesh", "of devices", self.mesh.sizes)
