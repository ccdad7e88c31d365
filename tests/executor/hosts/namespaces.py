"""Hosts as network namespaces of this machine, joined by a cable, where the system allows it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import pytest

CABLE = "cable0"


class Host(NamedTuple):
    name: str
    address: str

    def command(self, *command: str) -> list[str]:
        """A command, to be run on this host."""
        return ["ip", "netns", "exec", self.name, *command]


@contextmanager
def two_hosts(*, tools: tuple[str, ...] = ("ip",)) -> Iterator[tuple[Host, Host]]:
    """Two hosts named after this process, gone with all that is in them afterwards."""
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        pytest.skip(f"no {' and no '.join(missing)}: Debian has them in iproute2")
    pair = tuple(Host(f"stagecut{os.getpid()}-{i}", f"192.0.2.{i + 1}") for i in range(2))
    with ExitStack() as stack:
        for host in pair:
            stack.callback(subprocess.run, ["ip", "netns", "del", host.name], capture_output=True, check=False)
            set_up("ip", "netns", "add", host.name)
        set_up("ip", "-n", pair[0].name, *f"link add {CABLE} type veth peer name {CABLE} netns {pair[1].name}".split())
        for host in pair:
            set_up("ip", "-n", host.name, "address", "add", f"{host.address}/30", "dev", CABLE)
            for device in ("lo", CABLE):
                set_up("ip", "-n", host.name, "link", "set", device, "up")
        yield pair


def set_up(*command: str) -> None:
    """Do something that takes privileges."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{' '.join(command[:4])}: {done.stderr.strip() or 'not allowed'}")
