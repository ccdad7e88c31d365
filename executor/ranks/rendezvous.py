"""Rendezvous: how the ranks of a run find each other."""

import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from stagecut.executor.ranks.environment import attempt_number, is_on_one_machine, is_rank, launcher_folder
from stagecut.planner.core.messages.errors import BadInputError

_KEYS = "stagecut"
_LOOPBACK = "127.0.0.1"


def rendezvous(timeout: timedelta) -> dist.Store:  # type: ignore[name-defined]
    """The store of this attempt: a file under our launcher, else torchrun's. Nothing in it is ever unpickled.

    Each attempt of a restarted run has a store or key prefix of its own; gloo would otherwise find the addresses of the
    previous attempt.

    Raises
    ------
    BadInputError
        If the address of rank 0 is not set, or its port is taken.
    """
    if not is_rank():
        return dist.HashStore()  # type: ignore[attr-defined]
    folder = launcher_folder()
    if folder is not None:
        store = launcher_store(folder)
        store.set_timeout(timeout)
        return store
    return dist.PrefixStore(f"{_KEYS}/{attempt_number()}", _torchrun_store(timeout))  # type: ignore[attr-defined]


def launcher_store(folder: Path) -> dist.Store:  # type: ignore[name-defined]
    """The file of this attempt in the launcher's folder."""
    return dist.FileStore(str(folder / f"attempt{attempt_number()}.store"), -1)  # type: ignore[attr-defined]


def _torchrun_store(timeout: timedelta) -> dist.Store:  # type: ignore[name-defined]
    """Served by torchrun, or by rank 0 if the ranks were started by other means."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if host is None or not port.isdecimal():
        raise BadInputError("MASTER_ADDR and MASTER_PORT must be set to the address of rank 0; torchrun sets them")
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return _tcp_store(host, int(port), timeout)
    if not is_on_one_machine():
        return _tcp_store(host, int(port), timeout, is_master=os.environ["RANK"] == "0")
    if os.environ["RANK"] != "0":
        return _tcp_store(_LOOPBACK, int(port), timeout)
    try:
        listening = socket.create_server((_LOOPBACK, int(port)))  # torch would listen on all interfaces
    except (OSError, OverflowError) as fault:
        raise BadInputError(f"MASTER_PORT {port} cannot be used: {fault}; choose another") from None
    return _tcp_store(_LOOPBACK, int(port), timeout, is_master=True, master_listen_fd=listening.detach())


def _tcp_store(host: str, port: int, timeout: timedelta, **served: Any) -> dist.Store:  # type: ignore[name-defined]
    return dist.TCPStore(host, port, timeout=timeout, wait_for_workers=False, **served)  # type: ignore[attr-defined]
