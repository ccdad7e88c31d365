"""Device types.

- **Peak rates** are dense (no sparsity), on tensor cores if there are any, accumulating in fp32. fp32 is plain fp32,
  not TF32. A type that does not support a format gets its fp32 rate.
- **Memory** is that of the data sheet minus 1 GiB for the CUDA context and the framework: an assumption.
- **Efficiency**, the share of the peak that large kernels reach, is an assumption: 0.5 on tensor cores, near the
  44 to 52 % of Narayanan et al. (SC 2021) on A100; 0.45 on H100, whose peak is harder to reach; 0.7 without
  tensor cores.
- **Launch time**, 40 us per layer and direction, is an assumption: some ten kernels of a few us each.
"""

from stagecut.planner.core.cluster import DeviceType
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.units import GB, GIB, US

TERA = 1e12
CONTEXT_GIB = 1.0
"""Memory not available for training; an assumption."""
LAUNCH_S = 40 * US
"""An assumption."""


def _gpu(
    name: str,
    *,
    fp32: float,
    fp16: float | None,
    bf16: float | None,
    memory_gib: float,
    bandwidth_gb_per_s: float,
    sheet: str,
    efficiency: float = 0.5,
) -> DeviceType:
    """A GPU; peak rates in TFLOP/s, None if the format has to run as fp32."""
    rates = {Precision.FP32: fp32, Precision.FP16: fp16, Precision.BF16: bf16}
    emulated = [str(precision) for precision, rate in rates.items() if rate is None]
    assumptions = [f"{' and '.join(emulated)} at the fp32 rate"] if emulated else []
    assumptions += [
        f"{CONTEXT_GIB:g} of {memory_gib:g} GiB taken by context",
        f"efficiency {efficiency:g}",
        "40 us launch",
    ]
    return DeviceType(
        name=name,
        peak_flops_per_s=tuple(sorted((precision, TERA * (rate or fp32)) for precision, rate in rates.items())),
        memory_bytes=(memory_gib - CONTEXT_GIB) * GIB,
        memory_bandwidth_bytes_per_s=bandwidth_gb_per_s * GB,
        efficiency=efficiency,
        launch_s=LAUNCH_S,
        source=f"{sheet}; assumption: {', '.join(assumptions)}",
    )


TITAN_V = _gpu(
    "titan-v",
    fp32=14.9,
    fp16=110.0,
    bf16=None,
    memory_gib=12,
    bandwidth_gb_per_s=652.8,
    sheet="NVIDIA TITAN V specifications",
)
TITAN_RTX = _gpu(
    "titan-rtx",
    fp32=16.3,
    fp16=130.5,
    bf16=None,
    memory_gib=24,
    bandwidth_gb_per_s=672.0,
    sheet="NVIDIA TITAN RTX specifications, Turing architecture white paper",
)
RTX_2060 = _gpu(
    "rtx-2060",
    fp32=6.45,
    fp16=25.8,
    bf16=None,
    memory_gib=6,
    bandwidth_gb_per_s=336.0,
    sheet=(
        "NVIDIA GeForce RTX 2060 specifications, Turing architecture white paper (240 tensor cores at 1.68 GHz, "
        "half rate with sums in fp32)"
    ),
)
QUADRO_P4000 = _gpu(
    "quadro-p4000",
    fp32=5.3,
    fp16=None,
    bf16=None,
    memory_gib=8,
    bandwidth_gb_per_s=243.0,
    sheet="NVIDIA Quadro P4000 data sheet",
    efficiency=0.7,
)
RTX_3090 = _gpu(
    "rtx-3090",
    fp32=35.6,
    fp16=71.0,
    bf16=71.0,
    memory_gib=24,
    bandwidth_gb_per_s=936.0,
    sheet="NVIDIA Ampere GA102 architecture white paper",
)
A100_40 = _gpu(
    "a100-40",
    fp32=19.5,
    fp16=312.0,
    bf16=312.0,
    memory_gib=40,
    bandwidth_gb_per_s=1555.0,
    sheet="NVIDIA A100 data sheet, SXM4 40 GB",
)
A100_40_PCIE = _gpu(
    "a100-40-pcie",
    fp32=19.5,
    fp16=312.0,
    bf16=312.0,
    memory_gib=40,
    bandwidth_gb_per_s=1555.0,
    sheet="NVIDIA A100 data sheet, PCIe 40 GB",
)
H100_80 = _gpu(
    "h100-80",
    fp32=67.0,
    fp16=989.5,
    bf16=989.5,
    memory_gib=80,
    bandwidth_gb_per_s=3350.0,
    sheet="NVIDIA H100 data sheet, SXM5 80 GB, half of the rate with sparsity",
    efficiency=0.45,
)
V100_16 = _gpu(
    "v100-16",
    fp32=15.7,
    fp16=125.0,
    bf16=None,
    memory_gib=16,
    bandwidth_gb_per_s=900.0,
    sheet="NVIDIA V100 data sheet, SXM2 16 GB",
)
T4 = _gpu(
    "t4",
    fp32=8.1,
    fp16=65.0,
    bf16=None,
    memory_gib=16,
    bandwidth_gb_per_s=320.0,
    sheet="NVIDIA T4 data sheet, Turing architecture white paper",
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
DEVICE_TYPES = (
    TITAN_V,
    TITAN_RTX,
    RTX_2060,
    QUADRO_P4000,
    RTX_3090,
    A100_40,
    A100_40_PCIE,
    H100_80,
    V100_16,
    T4,
    CPU_CORE,
)
