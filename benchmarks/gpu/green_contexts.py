"""Disjoint parts of one GPU: green contexts, each with multiprocessors of its own and a stream.

torch's own `GreenContext.create` divides the whole device anew in every call, so that two of its contexts overlap
(pytorch issue 195378). Here one call of the driver divides it into all parts at once. Needs a driver of CUDA 12.5 or
later (CUDA driver API, section "Green Contexts").
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

LIBRARY = "libcuda.so.1"
SUCCESS, SM_RESOURCE, DEFAULT_STREAM, NON_BLOCKING = 0, 1, 1, 1
"""CUDA_SUCCESS, CU_DEV_RESOURCE_TYPE_SM, CU_GREEN_CTX_DEFAULT_STREAM, CU_STREAM_NON_BLOCKING."""


class GreenContextsUnavailableError(RuntimeError):
    """The driver or the device does not support green contexts."""


class Resource(ctypes.Structure):
    """The driver's CUdevResource: 144 bytes, the number of multiprocessors at byte 96."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("internal", ctypes.c_ubyte * 92),
        ("num_multiprocessors", ctypes.c_uint),
        ("reserved", ctypes.c_ubyte * 44),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GreenContexts:
    """Equal parts of a device."""

    streams: tuple[torch.cuda.Stream, ...]
    """One per part."""
    num_multiprocessors: int
    """Multiprocessors of each part."""


@cache
def green_contexts(device_index: int, count: int) -> GreenContexts:
    """Divide a device into this many equal parts, once for the life of the process.

    Neither contexts nor streams are destroyed: the memory allocator keeps blocks that belong to the streams.

    Raises
    ------
    GreenContextsUnavailableError
        If driver or device cannot.
    """
    driver = CudaDriver(_library())
    known = torch.cuda.get_device_properties(device_index).multi_processor_count
    torch.zeros(1, device=f"cuda:{device_index}")  # makes the primary context
    device = ctypes.c_int()
    driver.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(device_index))
    whole = Resource()
    driver.call("cuDeviceGetDevResource", device, ctypes.byref(whole), ctypes.c_int(SM_RESOURCE))
    if whole.num_multiprocessors != known:
        raise GreenContextsUnavailableError(f"the driver finds {whole.num_multiprocessors} of {known} multiprocessors")
    parts = split(driver, whole, count)
    return GreenContexts(
        streams=tuple(
            torch.cuda.ExternalStream(_stream(driver, part, device), device=f"cuda:{device_index}") for part in parts
        ),
        num_multiprocessors=min(int(part.num_multiprocessors) for part in parts),
    )


def split(driver: "CudaDriver", whole: Resource, count: int) -> "ctypes.Array[Resource]":
    """Parts as large as the driver's alignment allows."""
    parts = (Resource * count)()
    for wanted in range(whole.num_multiprocessors // count, 0, -1):
        found, rest = ctypes.c_uint(count), Resource()
        fault = driver.fault_of(
            "cuDevSmResourceSplitByCount",
            parts,
            ctypes.byref(found),
            ctypes.byref(whole),
            ctypes.byref(rest),
            ctypes.c_uint(0),
            ctypes.c_uint(wanted),
        )
        if fault is None and found.value == count:
            return parts
    raise GreenContextsUnavailableError(
        f"{whole.num_multiprocessors} multiprocessors cannot be divided into {count} equal parts"
    )


def _stream(driver: "CudaDriver", part: Resource, device: ctypes.c_int) -> int:
    """A stream whose work runs on one part of the device only."""
    description, context, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuDevResourceGenerateDesc", ctypes.byref(description), ctypes.byref(part), ctypes.c_uint(1))
    driver.call("cuGreenCtxCreate", ctypes.byref(context), description, device, ctypes.c_uint(DEFAULT_STREAM))
    driver.call("cuGreenCtxStreamCreate", ctypes.byref(stream), context, ctypes.c_uint(NON_BLOCKING), ctypes.c_int(0))
    assert stream.value is not None
    return stream.value


def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as fault:
        raise GreenContextsUnavailableError(str(fault)) from fault


class CudaDriver:
    """Functions of the CUDA driver by name."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the driver; raise if it fails."""
        fault = self.fault_of(name, *arguments)
        if fault is not None:
            raise GreenContextsUnavailableError(f"{name}: {fault}")

    def fault_of(self, name: str, *arguments: object) -> str | None:
        """Call a function of the driver; return the name of its error, None if it succeeded."""
        try:
            function = getattr(self._library, name)
        except AttributeError as fault:
            raise GreenContextsUnavailableError(f"the driver has no {name}") from fault
        code = function(*arguments)
        if code == SUCCESS:
            return None
        text = ctypes.c_char_p()
        self._library.cuGetErrorName(ctypes.c_int(code), ctypes.byref(text))
        return (text.value or str(code).encode()).decode()
