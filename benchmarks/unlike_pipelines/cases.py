"""Ten problems on which alike pipelines should have a hard time: odd counts, slow links, many replicas."""

from dataclasses import dataclass

from benchmarks.problems.specs import FREE
from stagecut.models import build_model
from stagecut.models.clusters.device_types import device_type
from stagecut.models.clusters.links import SWITCH, link
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Link, Server
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.units import GBIT_PER_S, US

ETHERNET_10G = Link(bandwidth_bytes_per_s=10 * GBIT_PER_S, latency_s=20 * US)
HDR_200, EDR_100, ETHERNET_25G = link("ib-hdr200"), link("ib-edr100"), link("eth25")
SHARED = (link("pcie3x16"), link("pcie4x16"))
"""Fabrics that all devices of a host share."""
SIZES = (1, 2, 4, 8)
"""Micro-batch sizes, where a case does not say otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """Some identical hosts."""

    kind: DeviceType
    num_hosts: int
    devices: int
    """Devices of each host."""
    fabric: Link
    nic: Link

    @property
    def server(self) -> Server:
        """Their server class, named after the device type."""
        island = Island(
            device_type=self.kind.name, count=self.devices, fabric=self.fabric, shared=self.fabric in SHARED
        )
        return Server(name=self.kind.name, count=self.num_hosts, islands=(island,), nic=self.nic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model, a cluster and a global batch."""

    model: str
    hosts: tuple[Hosts, ...]
    global_batch: int
    micro_batches: tuple[int, ...] = SIZES

    @property
    def cluster_name(self) -> str:
        """Hosts and devices of each type."""
        return " + ".join(f"{each.num_hosts} x {each.devices} {each.kind.name}" for each in self.hosts)

    @property
    def name(self) -> str:
        """The inputs, in short."""
        sizes = "" if self.micro_batches == SIZES else f" (micro-batches up to {max(self.micro_batches)})"
        return f"{self.model}, batch {self.global_batch}{sizes}, {self.cluster_name}"

    def problem(self) -> Problem:
        """The problem in fp16 with AdamW, all choices left to the planner."""
        precision = Precision.FP16
        return Problem(
            model=build_model(self.model, precision=precision),
            cluster=Cluster(
                name=self.cluster_name,
                device_types=tuple(each.kind for each in self.hosts),
                servers=tuple(each.server for each in self.hosts),
                network=SWITCH,
            ),
            job=Job(
                global_batch=self.global_batch,
                micro_batches=self.micro_batches,
                optimizer=standard_optimizer("adamw", precision),
                precision=precision,
                schedules=FREE,
            ),
        )


def _h100(num_hosts: int, devices: int = 8) -> Hosts:
    return Hosts(
        kind=device_type("h100-80"),
        num_hosts=num_hosts,
        devices=devices,
        fabric=link("nvlink4"),
        nic=link("ib-ndr400"),
    )


def _a100(num_hosts: int, devices: int = 8, nic: Link = HDR_200) -> Hosts:
    return Hosts(kind=device_type("a100-40"), num_hosts=num_hosts, devices=devices, fabric=link("nvlink3"), nic=nic)


def _v100(num_hosts: int, devices: int = 8, nic: Link = EDR_100) -> Hosts:
    return Hosts(kind=device_type("v100-16"), num_hosts=num_hosts, devices=devices, fabric=link("nvlink2"), nic=nic)


def _pcie(kind: DeviceType, num_hosts: int, devices: int, nic: Link = ETHERNET_25G) -> Hosts:
    return Hosts(kind=kind, num_hosts=num_hosts, devices=devices, fabric=link("pcie3x16"), nic=nic)


CASES = (
    Case(
        model="gpt2-xl",
        hosts=(_a100(1, nic=ETHERNET_25G), _pcie(device_type("rtx-3090"), 1, 8)),
        global_batch=128,
    ),
    Case(model="llama3-8b", hosts=(_a100(3), _v100(5)), global_batch=256),
    Case(model="gpt2-345m", hosts=(_a100(1, 7), _v100(1, 5)), global_batch=128),
    Case(
        model="bert-large",
        hosts=(_pcie(device_type("a100-40-pcie"), 3, 4), _pcie(device_type("t4"), 5, 4)),
        global_batch=480,
    ),
    Case(model="gpt2-xl", hosts=(_a100(10), _v100(30)), global_batch=960),
    Case(
        model="resnet152",
        hosts=(_a100(13), _v100(3)),
        global_batch=1024,
        micro_batches=(1, 2, 4, 8, 16, 32, 64),
    ),
    Case(model="llama3-8b", hosts=(_h100(1), _a100(3), _v100(5)), global_batch=480),
    Case(
        model="gpt2-1.3b",
        hosts=(_a100(3, 2, ETHERNET_10G), _pcie(device_type("rtx-3090"), 5, 2, ETHERNET_10G)),
        global_batch=240,
    ),
    Case(
        model="vit-large",
        hosts=(_v100(3, 3, ETHERNET_25G), _pcie(device_type("t4"), 7, 3)),
        global_batch=512,
    ),
    Case(
        model="vgg19",
        hosts=(
            _pcie(device_type("titan-v"), 1, 3, link("ib-fdr56")),
            _pcie(device_type("titan-rtx"), 1, 5, link("ib-fdr56")),
            _pcie(device_type("rtx-2060"), 1, 7, link("ib-fdr56")),
        ),
        global_batch=256,
    ),
)
EQUAL = Case(model="gpt2-xl", hosts=(_a100(2),), global_batch=128)
"""Equal devices that divide evenly: unlike shapes hardly save what the fluid bound is below the optimum here."""
SMALL = Case(model="resnet152", hosts=(_a100(13), _v100(3)), global_batch=1024)
"""A case with fewer micro-batch sizes, so that no stage can have more than eight replicas."""
CONTROLS = (EQUAL, SMALL)
QUICK = (Case(model="vgg16-cifar", hosts=(_a100(1, 2), _v100(1, 1)), global_batch=8),)
