"""Where the ranks of a run find each other: a file on one machine, the store that torchrun has opened on several."""

import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from stagecut.executor.run.faults import FOLDER, attempt_number
from stagecut.executor.run.rank_process import is_on_one_machine, is_rank
from stagecut.planner.core.errors import BadInputError

_KEYS = "stagecut"
_LOOPBACK = "127.0.0.1"


def meeting_place(timeout: timedelta) -> dist.Store:  # type: ignore[name-defined]
    """The store of this attempt; nothing in it is ever unpickled.

    Every attempt of a run that is started again has one, or keys, of its own: gloo would find the addresses of the
    attempt before otherwise.

    Raises
    ------
    BadInputError
        If a rank was not told where the first one is, or its port is taken.
    """
    if not is_rank():
        return dist.HashStore()  # type: ignore[attr-defined]
    folder = os.environ.get(FOLDER)
    if folder is not None:
        store = dist.FileStore(str(Path(folder, f"attempt{attempt_number()}.store")), -1)  # type: ignore[attr-defined]
        store.set_timeout(timeout)
        return store
    return dist.PrefixStore(f"{_KEYS}/{attempt_number()}", _torchruns(timeout))  # type: ignore[attr-defined]


def _torchruns(timeout: timedelta) -> dist.Store:  # type: ignore[name-defined]
    """Served by torchrun; or by rank 0, where ranks were started by other means."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if host is None or not port.isdecimal():
        raise BadInputError("MASTER_ADDR and MASTER_PORT must say where rank 0 is; torchrun sets them")
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return _tcp_store(host, int(port), timeout)
    if not is_on_one_machine():
        return _tcp_store(host, int(port), timeout, is_master=os.environ["RANK"] == "0")
    if os.environ["RANK"] != "0":
        return _tcp_store(_LOOPBACK, int(port), timeout)
    try:
        listening = socket.create_server((_LOOPBACK, int(port)))  # torch would listen on all interfaces
    except (OSError, OverflowError) as fault:
        raise BadInputError(f"MASTER_PORT {port} cannot be used: {fault}; name another") from None
    return _tcp_store(_LOOPBACK, int(port), timeout, is_master=True, master_listen_fd=listening.detach())


def _tcp_store(host: str, port: int, timeout: timedelta, **served: Any) -> dist.Store:  # type: ignore[name-defined]
    return dist.TCPStore(host, port, timeout=timeout, wait_for_workers=False, **served)  # type: ignore[attr-defined]
