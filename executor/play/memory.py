"""Memory that a rank has used at most."""

from pathlib import Path

import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class MemoryMeter:
    """High-water mark of a device's memory since the meter was made.

    On a GPU that of torch's allocator. On a CPU that of the process, less what it had at the start, which
    only Linux tells; the libraries' own memory makes it a rough figure for small models.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before_bytes = 0.0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        elif _STATUS.exists():
            _forget_peak()
            self._before_bytes = _status_bytes("VmRSS")

    def peak_bytes(self) -> float | None:
        """Bytes, or None where the system does not say."""
        if self._device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self._device))
        if not _STATUS.exists():
            return None
        return max(0.0, _status_bytes("VmHWM") - self._before_bytes)


def _status_bytes(field: str) -> float:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024.0 * float(line.split()[1])
    return 0.0


def _forget_peak() -> None:
    try:
        _RESET.write_text("5")
    except OSError:  # not allowed to: an earlier peak of the process counts as well
        return
