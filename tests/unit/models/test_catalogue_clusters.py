"""The catalogue of clusters."""

from collections import Counter

import numpy as np
import pytest

from stagecut.models import build_cluster, build_model, cluster_names, describe_cluster
from stagecut.models.cluster_catalogue import cluster_entry
from stagecut.models.clusters.commented import cluster_links
from stagecut.models.clusters.device_types import DEVICE_TYPES
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.layer_times import layer_times
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.files.cluster import read_cluster
from stagecut.planner.io.files.cluster import to_tree as cluster_tree

DEVICES = {
    "hetpipe-16": {"titan-v": 4, "titan-rtx": 4, "rtx-2060": 4, "quadro-p4000": 4},
    "commodity-32": {"rtx-3090": 32},
    "dgx-a100-16": {"a100-40": 16},
    "h100-8": {"h100-80": 8},
    "a100-v100-32": {"a100-40": 16, "v100-16": 16},
    "a100-v100-512": {"a100-40": 128, "v100-16": 384},
    "three-generations-64": {"h100-80": 16, "a100-40": 16, "v100-16": 16, "t4": 16},
    "mixed-server-8": {"a100-40-pcie": 4, "t4": 4},
    "cpu-2": {"cpu-core": 2},
}


def test_catalogue_has_every_promised_cluster():
    assert cluster_names() == tuple(DEVICES)


@pytest.mark.parametrize("name", DEVICES)
def test_cluster_has_the_devices_its_name_promises(name):
    cluster = build_cluster(name)
    assert Counter(device.device_type for device in cluster.devices()) == DEVICES[name]
    assert cluster.name == name
    assert name == "cpu-2" or name.endswith(f"-{cluster.num_devices}")
    assert describe_cluster(name)


@pytest.mark.parametrize("name", DEVICES)
def test_every_figure_carries_its_source(name):
    """A vendor's sheet or standard, or the word assumption; latencies are assumptions throughout."""
    entry = cluster_entry(name)
    assert all(kind.source for kind in entry.cluster.device_types)
    assert all("assumption" in link.source for link in cluster_links(entry.cluster))


@pytest.mark.parametrize("kind", DEVICE_TYPES, ids=lambda kind: kind.name)
def test_every_device_type_runs_every_precision(kind):
    """A lower precision is never slower than fp32, and what is no vendor figure is called an assumption."""
    slowest = kind.flops_per_s(Precision.FP32)
    assert all(kind.flops_per_s(precision) >= slowest for precision in Precision)
    assert "assumption" in kind.source
    assert kind.launch_s > 0


def test_emulated_formats_are_marked():
    """Pascal, Volta and Turing lack bf16; of Pascal only P100 has fast fp16."""
    marked = {kind.name for kind in DEVICE_TYPES if "bf16 at the fp32 rate" in kind.source}
    volta = {"titan-v", "v100-16", "v100-16-pcie", "v100-32", "v100-32-pcie"}
    turing = {"titan-rtx", "rtx-2060", "rtx-2080-ti", "t4"}
    assert marked == {*volta, *turing, "quadro-p4000", "p100", "p100-pcie", "cpu-core"}


def test_hetpipe_has_the_figures_of_its_paper():
    """12, 24, 6 and 8 GB less 1 GiB each; PCIe 15.75 GB/s shared; 56 Gb/s between servers."""
    cluster = build_cluster("hetpipe-16")
    assert [kind.memory_bytes / 2**30 for kind in cluster.device_types] == [11, 23, 5, 7]
    for server in cluster.servers:
        assert server.islands[0].fabric.bandwidth_bytes_per_s == 15.75e9
        assert server.islands[0].shared
        assert server.nic.bandwidth_bytes_per_s == 56e9 / 8


def test_interfaces_of_three_generations_are_uneven():
    gigabits = [server.nic.bandwidth_bytes_per_s * 8 / 1e9 for server in build_cluster("three-generations-64").servers]
    assert gigabits == [400, 200, 100, 25]


def test_mixed_server_has_two_islands_and_a_bridge():
    (server,) = build_cluster("mixed-server-8").servers
    assert [island.device_type for island in server.islands] == ["a100-40-pcie", "t4"]
    assert server.bridge is not None


@pytest.mark.parametrize("name", DEVICES)
def test_clusters_survive_the_cluster_file(name, tmp_path):
    cluster = build_cluster(name)
    path = tmp_path / "cluster.json"
    path.write_text(format_json(cluster_tree(cluster)))
    assert read_cluster(path) == cluster


@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize("name", DEVICES)
def test_every_cluster_can_time_a_model_in_every_precision(name, precision):
    job = Job(global_batch=8, optimizer=standard_optimizer("adamw", precision), precision=precision)
    problem = Problem(model=build_model("bert-large", precision=precision), cluster=build_cluster(name), job=job)
    for kind in problem.cluster.device_types:
        forward_s, backward_s = layer_times(problem.model, kind, 1)
        assert np.all(np.isfinite(forward_s)) and np.all(forward_s > 0)
        assert np.all(backward_s >= forward_s)


def test_unknown_cluster_is_answered_with_the_nearest_name():
    with pytest.raises(BadInputError, match=r"unknown cluster 'hetpipe16': did you mean 'hetpipe-16'\?"):
        build_cluster("hetpipe16")
