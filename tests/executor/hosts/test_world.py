"""What the ranks of a run have in common."""

import os

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist

from stagecut.executor.ranks.environment import RUN_FOLDER
from stagecut.executor.ranks.wait_graph import WaitGraph
from stagecut.executor.ranks.world import World, join_world
from stagecut.planner.core.messages.errors import BadInputError


@pytest.fixture
def world():
    """One rank, with a store of its own as in every run."""

    def alone():
        wait_graph, device = WaitGraph(0, 1), torch.device("cpu")
        store = dist.HashStore()
        return World(rank=0, world_size=1, backend="gloo", device=device, wait_graph=wait_graph, store=store)

    return alone


def test_every_run_gets_an_empty_folder(world, tmp_path, monkeypatch):
    """Links of a dilated run go on from what their file holds."""
    monkeypatch.setenv(RUN_FOLDER, str(tmp_path))
    first = world().shared_folder()
    (first / "links").write_bytes(b"1")
    second = world().shared_folder()
    assert {first.parent, second.parent} == {tmp_path}
    assert list(second.iterdir()) == []


def test_ranks_of_several_machines_have_no_folder(world, monkeypatch):
    """Two ranks, one of them here."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    with pytest.raises(BadInputError, match="start all ranks on this one"):
        world().shared_folder()


def test_a_rank_must_be_told_where_the_first_one_is(monkeypatch):
    """A user who starts ranks by hand may forget the address."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "29500", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(BadInputError, match="MASTER_ADDR and MASTER_PORT"):
        join_world(device="cpu")


def test_nccl_is_told_its_device_and_to_start_kernels_in_order(monkeypatch):
    """No GPU is needed: the test looks at what torch would be asked for on a host that has one."""
    asked = {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **options: asked.update(options, backend=backend))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "")
    monkeypatch.delenv("NCCL_LAUNCH_ORDER_IMPLICIT")  # and with that taken back behind the test
    join_world(backend="nccl")
    assert (asked["backend"], asked["device_id"]) == ("cpu:gloo,cuda:nccl", torch.device("cuda", 0))
    assert os.environ["NCCL_LAUNCH_ORDER_IMPLICIT"] == "1"
