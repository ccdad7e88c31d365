"""Models divided over one group of devices, on hosts of one GPU and on hosts of eight."""

from dataclasses import dataclass

from stagecut.models import build_model
from stagecut.models.clusters.device_types import device_type
from stagecut.models.clusters.links import SWITCH, link
from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.job import standard_optimizer
from stagecut.planner.core.precision import Precision
from stagecut.planner.cost.meshes import meshes_of
from stagecut.planner.sharding_search.case import ShardingCase
from stagecut.planner.sharding_search.cases import sharding_cases, whole_class

MAX_AXES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedModel:
    """A catalogue model on V100 GPUs with 100 Gbit/s between hosts; one micro-batch is the whole batch."""

    model: str
    num_hosts: int
    per_host: int
    samples_per_device: int
    optimizer: str

    @property
    def name(self) -> str:
        """Model, hosts and batch."""
        return f"{self.model}, {self.num_hosts} x {self.per_host}, batch {self.global_batch}"

    @property
    def global_batch(self) -> int:
        """Samples per iteration."""
        return self.num_hosts * self.per_host * self.samples_per_device

    def cluster(self) -> Cluster:
        """Hosts behind one switch, with NVLink inside."""
        kind = device_type("v100-16")
        island = Island(device_type=kind.name, count=self.per_host, fabric=link("nvlink2"))
        server = Server(name="host", count=self.num_hosts, islands=(island,), nic=link("ib-edr100"))
        return Cluster(name=self.name, device_types=(kind,), servers=(server,), network=SWITCH)

    def cases(self) -> tuple[ShardingCase, ...]:
        """One for each mesh of up to two axes."""
        cluster = self.cluster()
        meshes = meshes_of(cluster, whole_class(cluster, None), max_axes=MAX_AXES)
        return tuple(
            case
            for mesh in meshes
            for case in sharding_cases(
                build_model(self.model, precision=Precision.FP16, sequence_length=None),
                cluster,
                optimizer=standard_optimizer(self.optimizer, Precision.FP16),
                global_batch=self.global_batch,
                micro_batch=self.global_batch,
                mesh=mesh.sizes,
            )
        )
