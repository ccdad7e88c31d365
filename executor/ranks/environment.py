"""The environment variables of a rank: torchrun's, and those that our launcher adds."""

import os
import sys
from pathlib import Path

RUN_FOLDER = "STAGECUT_RUN_FOLDER"
"""The launcher's temporary folder: failure reports, the rendezvous file and the wait graph live there."""
LAUNCHER = "STAGECUT_LAUNCHER"
"""Process id of what starts this process: the launcher, or for a rank the process it is forked from."""
ATTEMPT = "TORCHELASTIC_RESTART_COUNT"
"""How many times the run has been restarted."""
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
LOOPBACK_ONLY = {"GLOO_SOCKET_IFNAME": _LOOPBACK, "NCCL_SOCKET_IFNAME": _LOOPBACK}
"""Makes gloo and NCCL open their ports on the loopback interface alone."""
TIMEOUT_S = 120.0
"""How long a rank waits for another before it gives up."""


def is_rank() -> bool:
    """Whether this process was started as one rank of several, by torchrun or by our launcher."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def rank() -> int:
    """Rank of this process; 0 if it was not started as one."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """Number of ranks; 1 if this process was not started as a rank."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_world_size() -> int:
    """Number of ranks on this host."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def is_on_one_machine() -> bool:
    """Whether all ranks run on this host."""
    return os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")


def attempt_number() -> int:
    """How many times the run has been restarted."""
    return int(os.environ.get(ATTEMPT, "0"))


def launcher_folder() -> Path | None:
    """The launcher's temporary folder; None under torchrun or without a launcher."""
    folder = os.environ.get(RUN_FOLDER)
    return Path(folder) if folder else None
