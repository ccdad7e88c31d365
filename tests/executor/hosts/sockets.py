"""What processes listen on, as the kernel tells it."""

import ipaddress
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_LISTEN = "0A"
_INODE = re.compile(r"socket:\[(\d+)\]")
_WORD = 4


class Listener(NamedTuple):
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int


def listeners(pids: Iterable[int]) -> dict[int, set[Listener]]:
    """TCP sockets that each process listens on; processes may be in other network namespaces."""
    return {pid: set(_listeners(pid)) for pid in pids}


def descendants(pid: int) -> list[int]:
    """Processes that a process has started, and those that they have started."""
    return [each for child in children(pid) for each in (child, *descendants(child))]


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def _listeners(pid: int) -> Iterator[Listener]:
    own = {found[1] for link in _open_files(pid) if (found := _INODE.fullmatch(link))}
    if not own:
        return
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and fields[9] in own:
                yield _parsed(fields[1])


def _open_files(pid: int) -> Iterator[str]:
    """List the open files of a process, without those closed meanwhile; none if the process has just ended."""
    with suppress(FileNotFoundError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                yield str(path.readlink())


def _parsed(text: str) -> Listener:
    """`0100007F:1F90`: words of four bytes, each in the machine's order."""
    digits, _, port = text.partition(":")
    raw = bytes.fromhex(digits)
    words = [raw[start : start + _WORD] for start in range(0, len(raw), _WORD)]
    ordered = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    return Listener(ipaddress.ip_address(ordered), int(port, 16))
