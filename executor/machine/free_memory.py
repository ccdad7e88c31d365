"""Main memory still available to this process and its children."""

from collections.abc import Iterator
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_UNLIMITED_BYTES = 2**60
"""Control groups of version 1 report a huge number for "no limit"."""


def free_memory_bytes(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Available memory of the system, or less if a control group limits it; None if unknown."""
    known = [bytes for bytes in (_available_bytes(proc / "meminfo"), *_group_bytes(proc, cgroups)) if bytes is not None]
    return max(0, min(known)) if known else None


def _available_bytes(meminfo: Path) -> int | None:
    for line in _text(meminfo).splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return 1024 * int(value.split()[0])
    return None


def _group_bytes(proc: Path, cgroups: Path) -> Iterator[int]:
    """What is left under the limits of this process's control group and each of its parents."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            root = cgroups / controllers
            limit, usage = _LIMITS[controllers]
            own = root / path.strip("/")
            for folder in (own, *(parent for parent in own.parents if parent.is_relative_to(root)), root):
                yield from _left(folder, limit, usage)


_LIMITS = {"": ("memory.max", "memory.current"), "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes")}
"""Files of version 2 and version 1, by the controllers named in /proc/self/cgroup."""


def _left(folder: Path, limit: str, usage: str) -> Iterator[int]:
    """Page cache does not count as used, because it is reclaimed when memory gets short."""
    most, used = _text(folder / limit).strip(), _text(folder / usage).strip()
    if most.isdecimal() and used.isdecimal() and int(most) < _UNLIMITED_BYTES:
        yield int(most) - int(used) + _file_bytes(folder)


def _file_bytes(folder: Path) -> int:
    for line in _text(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
