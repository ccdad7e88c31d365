"""Where ranks find each other, as their environment says."""

import os
import socket
import sys
from datetime import timedelta

import pytest

pytest.importorskip("torch")

import torch.distributed as dist

from stagecut.executor.ranks.environment import ATTEMPT, RUN_FOLDER
from stagecut.executor.ranks.rendezvous import rendezvous
from stagecut.planner.core.messages.errors import BadInputError
from tests.executor.hosts.sockets import listeners

PATIENCE = timedelta(seconds=10)
NAMES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_USE_AGENT_STORE",
    RUN_FOLDER,
)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """The environment of a process that is not a rank."""
    for name in (*NAMES, ATTEMPT):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def listening():
    return listeners([os.getpid()])[os.getpid()]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def test_ranks_of_our_launcher_meet_in_a_file_of_their_attempt(environment, tmp_path):
    """The second rank reads what the first has written; another attempt starts with nothing."""
    before = listening() if sys.platform == "linux" else None
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", RUN_FOLDER: str(tmp_path)}.items():
        environment.setenv(name, value)
    first, second = rendezvous(PATIENCE), rendezvous(PATIENCE)
    first.set("key", "value")
    assert second.get("key") == b"value"
    environment.setenv(ATTEMPT, "1")
    assert not rendezvous(PATIENCE).check(["key"])
    assert before is None or listening() == before


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_store_that_rank_0_serves_to_its_own_machine_is_on_loopback(environment, address):
    """Started by other means than torchrun; a second client connects as another rank would."""
    before, port = listening(), free_port()
    rank = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": str(port)}
    for name, value in rank.items():
        environment.setenv(name, value)
    store = rendezvous(PATIENCE)
    own = listening() - before
    assert {listener.port for listener in own} == {port}
    assert all(listener.address.is_loopback for listener in own)
    environment.setenv("RANK", "1")
    other = rendezvous(PATIENCE)
    store.set("key", "value")
    assert other.get("key") == b"value"


def test_process_that_is_no_rank_meets_nobody():
    assert isinstance(rendezvous(PATIENCE), dist.HashStore)


def test_port_that_is_taken_is_named(environment):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "x", "MASTER_PORT": str(port)}
        for name, value in rank.items():
            environment.setenv(name, value)
        with pytest.raises(BadInputError, match=f"MASTER_PORT {port} cannot be used: .*choose another"):
            rendezvous(PATIENCE)
