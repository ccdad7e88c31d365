"""The devices of this machine."""

import os
import re
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import distributed

from stagecut.executor.ranks.allocator import keep_freed_memory
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.numerics.cores import usable_cores
from stagecut.planner.core.precision import Precision

AUTOCAST = {Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}
"""Types in which autocast computes; weights stay in fp32."""
INTERFACES = Path("/sys/class/net")
TOOL_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDevice:
    """One GPU."""

    index: int
    name: str
    device_type: str
    """Its name in profiles and clusters."""
    memory_bytes: int
    capability: tuple[int, int]
    num_multiprocessors: int
    compute_mode: str
    """From the driver: Default, Exclusive_Process or Prohibited; or unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A network interface, for `GLOO_SOCKET_IFNAME`."""

    name: str
    state: str
    """From the system: up, down or unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The devices of one host, and what connects them."""

    cores: int
    """Processor cores that this process may use."""
    threads: int
    """Torch's default number of threads."""
    memory_bytes: int
    cuda_devices: tuple[CudaDevice, ...]
    backends: tuple[str, ...]
    """Backends of torch.distributed."""
    interfaces: tuple[Interface, ...]


def this_machine() -> Machine:
    """Describe this machine."""
    return Machine(
        cores=usable_cores(),
        threads=torch.get_num_threads(),
        memory_bytes=memory_bytes(),
        cuda_devices=tuple(_cuda_device(index) for index in range(torch.cuda.device_count())),
        backends=_backends(),
        interfaces=tuple(_interface(name) for _, name in socket.if_nameindex()),
    )


def memory_bytes() -> int:
    """Main memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def threads_each(processes: int) -> int:
    """Threads per process if several processes share the cores."""
    return max(1, usable_cores() // processes)


def choose_device(wanted: str, processes: int) -> str:
    """`cpu` or `cuda`, as wanted; `auto` means GPUs if there are enough.

    Raises
    ------
    BadInputError
        If there are too few GPUs.
    """
    found = torch.cuda.device_count()
    if wanted == "cuda" and found < processes:
        raise BadInputError(
            f"--device cuda: {processes} processes need one GPU each, this machine has {found}; "
            "use fewer processes, or --device cpu"
        )
    if wanted == "auto":
        return "cuda" if found >= processes else "cpu"
    return wanted


def use_device(kind: str, *, index: int, threads: int) -> torch.device:
    """Select this process's device and number of threads."""
    torch.set_num_threads(threads)
    if kind == "cpu":
        keep_freed_memory()
        return torch.device("cpu")
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device


def numbered(device: torch.device) -> torch.device:
    """The same device; a GPU without a number is the calling thread's current one. Threads select GPUs by number."""
    return torch.device("cuda", torch.cuda.current_device()) if str(device) == "cuda" else device


def device_type_name(device: torch.device, threads: int) -> str:
    """Name of this kind of device in profiles and clusters, for example `cpu-1-thread` or `nvidia-a100-sxm4-80gb`."""
    if device.type == "cpu":
        return f"cpu-{threads}-thread{'' if threads == 1 else 's'}"
    return slug(torch.cuda.get_device_name(device))


def device_title(device: torch.device, threads: int) -> str:
    """A human-readable description of the device."""
    if device.type == "cpu":
        return f"{threads} of {usable_cores()} processor cores, {torch.backends.cpu.get_cpu_capability()}"
    return torch.cuda.get_device_name(device)


def device_memory_bytes(device: torch.device, sharing: int) -> int:
    """Memory of a GPU, or an equal share of main memory for each of several processes."""
    if device.type == "cpu":
        return memory_bytes() // sharing
    return int(torch.cuda.get_device_properties(device).total_memory)


def slug(name: str) -> str:
    """A name in lower-case letters and digits, separated by hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _cuda_device(index: int) -> CudaDevice:
    properties = torch.cuda.get_device_properties(index)
    return CudaDevice(
        index=index,
        name=properties.name,
        device_type=slug(properties.name),
        memory_bytes=int(properties.total_memory),
        capability=(properties.major, properties.minor),
        num_multiprocessors=properties.multi_processor_count,
        compute_mode=_compute_mode(str(properties.uuid)),
    )


def _compute_mode(uuid: str) -> str:
    """The compute mode as nvidia-smi reports it; torch does not."""
    command = ["nvidia-smi", "--query-gpu=uuid,compute_mode", "--format=csv,noheader"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TOOL_LIMIT_S).stdout
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    modes = dict(line.split(", ", 1) for line in output.splitlines() if ", " in line)
    return modes.get(f"GPU-{uuid}", "unknown")


def _backends() -> tuple[str, ...]:
    if not distributed.is_available():
        return ()
    offered = {"gloo": distributed.is_gloo_available, "nccl": distributed.is_nccl_available}
    return tuple(name for name, available in offered.items() if available())


def _interface(name: str) -> Interface:
    try:
        state = (INTERFACES / name / "operstate").read_text().strip()
    except OSError:
        state = "unknown"
    return Interface(name=name, state=state)
