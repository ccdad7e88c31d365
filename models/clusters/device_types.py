"""Device types.

- **Peak rates** are dense (no sparsity), on tensor or matrix cores if there are any, accumulating in fp32. fp32 is
  plain fp32, not TF32. A type that does not support a format gets its fp32 rate.
- **Memory** is that of the data sheet minus 1 GiB for the CUDA context and the framework: an assumption. GDDR with
  error correction switched on holds 1/16 less.
- **Efficiency**, the share of the peak that large kernels reach, is an assumption: 0.5 on tensor cores, near the
  44 to 52 % of Narayanan et al. (SC 2021) on A100; 0.45 on H100, its successors and CDNA 3, whose peaks are harder to
  reach; 0.7 without tensor cores.
- **Launch time**, 40 us per layer and direction, is an assumption: some ten kernels of a few us each.
- **Sources** name the vendor's publication. Figures of types outside the clusters above were mostly read where others
  quote it; those that could not be compared with anything are marked *unverified*.
- **Fabric and interface** are those of servers that are usually sold with the type, for descriptions that name none.
"""

from dataclasses import dataclass

from stagecut.models.clusters.figures import rows
from stagecut.planner.core.cluster import DeviceType
from stagecut.planner.core.messages.names import unknown_name
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.units import GB, GIB, US

TERA = 1e12
CONTEXT_GIB = 1.0
"""Memory not available for training; an assumption."""
LAUNCH_S = 40 * US
"""An assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownType:
    """A device type with the names of the links it usually has."""

    kind: DeviceType
    fabric: str
    interface: str


def _gpu(row: dict[str, str]) -> DeviceType:
    """A GPU from its row: peak rates in TFLOP/s, empty if the format has to run as fp32."""
    fp32, memory_gib, efficiency = (float(row[key]) for key in ("fp32", "memory_gib", "efficiency"))
    emulated = [str(precision) for precision in Precision if not row[precision]]
    assumptions = [f"{' and '.join(emulated)} at the fp32 rate"] if emulated else []
    assumptions += [
        f"{CONTEXT_GIB:g} of {memory_gib:g} GiB taken by context",
        f"efficiency {efficiency:g}",
        "40 us launch",
    ]
    return DeviceType(
        name=row["name"],
        peak_flops_per_s=tuple((precision, TERA * float(row[precision] or fp32)) for precision in sorted(Precision)),
        memory_bytes=(memory_gib - CONTEXT_GIB) * GIB,
        memory_bandwidth_bytes_per_s=float(row["memory_gb_per_s"]) * GB,
        efficiency=efficiency,
        launch_s=LAUNCH_S,
        source=f"{row['sheet']}; assumption: {', '.join(assumptions)}",
    )


CPU_CORE = DeviceType(
    name="cpu-core",
    peak_flops_per_s=tuple((precision, 96e9) for precision in sorted(Precision)),
    memory_bytes=4 * GIB,
    memory_bandwidth_bytes_per_s=10 * GB,
    efficiency=0.7,
    launch_s=20 * US,
    source=(
        "assumption: one core at 3 GHz with two 256-bit fused multiply-adds per cycle, fp16 and bf16 at the fp32 "
        "rate, 4 GiB and 10 GB/s of memory, efficiency 0.7, 20 us launch"
    ),
)
KNOWN_TYPES = (
    *(KnownType(kind=_gpu(row), fabric=row["fabric"], interface=row["interface"]) for row in rows("device_types")),
    KnownType(kind=CPU_CORE, fabric="shared-memory", interface="eth25"),
)
DEVICE_TYPES = tuple(known.kind for known in KNOWN_TYPES)


def known_type(name: str) -> KnownType:
    """The type of that name; raises a BadInputError, with the nearest names, if there is none."""
    for known in KNOWN_TYPES:
        if known.kind.name == name:
            return known
    raise unknown_name("device type", name, [known.kind.name for known in KNOWN_TYPES])


def device_type(name: str) -> DeviceType:
    """The figures of that type; raises the error of :func:`known_type`."""
    return known_type(name).kind
