"""Planners of papers on their authors' own inputs: what the published programs find, to the last digit."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from planner.cli.main import main
from planner.core.cluster import Cluster, Island, Link, Server
from planner.core.precision import Precision
from planner.core.problem import Problem
from planner.io.profile import read_profile
from planner.solvers.options import SolveOptions
from planner.solvers.registry import run
from tests.catalogue import WEIGHTS_ONLY, job, kinds

PUBLISHED = Path(__file__).parent / "data" / "published"
GIB = 2.0**30


def graph_of(name):
    """A profile of PipeDream, as its profiler writes it."""
    lines = (PUBLISHED / f"{name}.txt").read_text().splitlines()
    rows = [[*map(float, line.split())] for line in lines if not line.startswith("#")]
    nodes = [
        f"node{index} -- Layer -- forward_compute_time={row[0]}, backward_compute_time={row[1]}, "
        f"activation_size={row[2]}, parameter_size={row[3]}"
        for index, row in enumerate(rows)
    ]
    readers = [int(row[4]) if len(row) > 4 else 1 for row in rows]
    edges = [
        f"\tnode{index} -- node{index + step}"
        for index, count in enumerate(readers)
        for step in range(1, count + 1)
        if index + step < len(rows)
    ]
    return "\n".join((*nodes, *edges)) + "\n"


def converted(path, *options):
    """What `plan convert` makes of a file."""
    profile = path.with_name("profile.json")
    done = CliRunner().invoke(main, ["convert", str(path), *options, "-o", str(profile)])
    assert done.exit_code == 0, done.output
    return read_profile(profile)


def four_servers_of_four(kind):
    """Links of 4 GiB/s inside a server, of 2 GiB/s between servers."""
    inside, between = (Link(bandwidth_bytes_per_s=size * GIB) for size in (4, 2))
    server = Server(name="host", count=4, islands=(Island(device_type=kind, count=4, fabric=inside),))
    return Cluster(name="4x4", device_types=kinds(**{kind: np.inf}), servers=(server,), network=between)


@pytest.mark.parametrize(("name", "slowest_s"), [("vgg16", 0.05678145397663117), ("alexnet", 0.0087890625)])
def test_pipedream_finds_what_its_program_finds(tmp_path, name, slowest_s):
    """`optimizer_graph_hierarchical.py -n 4 4 -b 4294967296 2147483648 --activation_compression_ratio 1`.

    A minibatch of 48 samples can be shared by any number of replicas that 4 x 4 devices allow.
    AlexNet: on the fourth server 9,437,184 bytes come in and their gradients go out, at 2 GiB/s.
    """
    graph = tmp_path / "graph.txt"
    graph.write_text(graph_of(name))
    model = converted(graph, "--from", "pipedream", "--device-type", "v100", "--micro-batch", "48", "--keep-nodes")
    choices = job(4, micro_batch=48, pipelines=(1,), optimizer=WEIGHTS_ONLY, precision=Precision.FP32)
    problem = Problem(model=model, cluster=four_servers_of_four("v100"), job=choices)
    result = run(problem, "pipedream", SolveOptions())
    assert result.own_objective.value * 48 == pytest.approx(slowest_s, rel=1e-12)
