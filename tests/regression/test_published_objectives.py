"""Planners of papers on their authors' own inputs: what the published programs find, to the last digit."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from stagecut.planner.cli.main import main
from stagecut.planner.core.cluster import Cluster, Island, Link, Server
from stagecut.planner.core.job import Optimizer
from stagecut.planner.core.numerics.tolerances import PIPER_LOAD
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.io.files.profile import read_profile
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
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
    edges = [
        f"\tnode{index} -- node{index + int(step)}"
        for index, row in enumerate(rows)
        for step in row[4:] or [1] * (index + 1 < len(rows))
    ]
    return "\n".join((*nodes, *edges)) + "\n"


def converted(path, *options):
    """Convert a file as `plan convert` does."""
    profile = path.with_name("profile.json")
    done = CliRunner().invoke(main, ["convert", str(path), *options, "-o", str(profile)])
    assert done.exit_code == 0, done.output
    return read_profile(profile)


def four_servers_of_four(kind):
    """Links of 4 GiB/s inside a server, of 2 GiB/s between servers."""
    inside, between = (Link(bandwidth_bytes_per_s=size * GIB) for size in (4, 2))
    server = Server(name="host", count=4, islands=(Island(device_type=kind, count=4, fabric=inside),))
    return Cluster(name="4x4", device_types=kinds(**{kind: np.inf}), servers=(server,), network=between)


def four_by_four(name, tmp_path, pipelines):
    """PipeDream's answer for its own input, with a minibatch that any number of replicas can share."""
    graph = tmp_path / "graph.txt"
    graph.write_text(graph_of(name))
    model = converted(graph, "--from", "pipedream", "--device-type", "v100", "--micro-batch", "48", "--keep-nodes")
    choices = job(16, micro_batch=48, pipelines=pipelines, optimizer=WEIGHTS_ONLY, precision=Precision.FP32)
    problem = Problem(model=model, cluster=four_servers_of_four("v100"), job=choices)
    return run(problem, "pipedream", SolveOptions())


@pytest.mark.parametrize(
    ("name", "slowest_s"),
    [("vgg16", 0.05678145397663117), ("alexnet", 0.0087890625), ("resnet50", 0.03693853135055304)],
)
def test_pipedream_finds_what_its_program_finds(tmp_path, name, slowest_s):
    """`optimizer_graph_hierarchical.py -n 4 4 -b 4294967296 2147483648 --activation_compression_ratio 1`.

    AlexNet: on the fourth server 9,437,184 bytes come in and their gradients go out, at 2 GiB/s. ResNet-50: the whole
    pipeline, on 2 + 1 + 1 devices of a server, is replicated over the servers.
    """
    result = four_by_four(name, tmp_path, (1, 4, 16))
    assert result.own_objective.value * 48 == pytest.approx(slowest_s, rel=1e-12)
    assert len(result.plan.pipelines) == (4 if name == "resnet50" else 1)


def block_rows():
    """Seconds per sample of the 32 blocks by degree of tensor parallelism, without and with recomputation."""
    lines = (line.split() for line in (PUBLISHED / "bert32a100.txt").read_text().splitlines() if line[0] != "#")
    return {(int(degree), kind): [int(word) / 1e6 for word in times] for degree, kind, *times in lines}


def piper_file(path):
    """BERT-32 as Piper's authors wrote it: two inputs, an embedding, blocks that all read the mask, a pooler."""
    ways = block_rows()
    blocks = [3, *range(5, 36)]

    def node(identity, name, configurations):
        tmpcs = {
            str(degree): [
                {"id": kind, "timePerSample": seconds, "parameterSize": size, "memoryUsageA": kept}
                for kind, (seconds, size, kept) in found.items()
            ]
            for degree, found in configurations.items()
        }
        return {"id": identity, "name": name, "TMPCs": tmpcs}

    def still(size, kept):
        return {1: dict.fromkeys(("vanilla", "recomp"), (0.0, size, kept))}

    embedding = {1: {"vanilla": (1116e-6, 200824320, 1982464), "recomp": (1413e-6, 200824320, 16384)}}
    weights = {1: 176997120, 2: 88510080, 4: 44266560, 8: 22144800}
    saved = {1: 606478336, 2: 341581824, 4: 208543744, 8: 142811136}
    nodes = [node(identity, "tensor", still(0, kept)) for identity, kept in ((0, 8192), (2, 8192), (4, 16777216))]
    nodes += [node(1, "Embedding", embedding), node(36, "Pooler", still(14749440, 31457280))]
    for place, identity in enumerate(blocks):
        configurations = {
            degree: {
                "vanilla": (ways[degree, "vanilla"][place], weights[degree], saved[degree]),
                "recomp": (ways[degree, "recomp"][place], weights[degree], 48234496),
            }
            for degree in weights
        }
        nodes.append(node(identity, "Block", configurations))
    edges = [(0, 1, 8192), (2, 1, 8192), (1, 3, 31457280), (4, 3, 16777216), (35, 36, 31457280)]
    edges += [(4, block, 31457280) for block in blocks[1:]]
    edges += [(before, block, 16777216) for before, block in pairwise(blocks)]
    tree = {
        "nodes": sorted(nodes, key=lambda entry: entry["id"]),
        "edges": [{"sourceId": a, "destId": b, "communicationCost": size} for a, b, size in edges],
    }
    path.write_text(json.dumps(tree))


@pytest.mark.parametrize(
    ("gibibytes", "per_s", "load_s"), [(8, 25, 0.16585575), (16, 25, 0.14742736201953885), (8, 5, 0.2583945)]
)
def test_piper_finds_what_its_program_finds(tmp_path, gibibytes, per_s, load_s):
    """8 devices, 480 micro-batches, GB of 2^30 bytes; each device holds weights and gradients, 4 bytes each.

    The first: 5 blocks in 0.151637 s, whose mask goes to each of them, 31,457,280 bytes, with 16,777,216 at either end:
    2 (5 x 31,457,280 + 2 x 16,777,216) / (25 x 2^30) = 0.01421875 s. In the others, which its recursion gives node by
    node on the whole graph, stages have up to 4 replicas, for which each micro-batch has 8 samples here.
    """
    file = tmp_path / "bert32a100.json"
    piper_file(file)
    model = converted(file, "--device-type", "a100", "--micro-batch", "8", "--keep-nodes")
    server = Server(name="host", count=8, islands=(Island(device_type="a100", count=1),))
    network = Link(bandwidth_bytes_per_s=per_s * GIB)
    memory = kinds(a100=gibibytes * GIB)
    cluster = Cluster(name="eight", device_types=memory, servers=(server,), network=network)
    holds = Optimizer(name="weights and gradients", weight_bytes=4.0, gradient_bytes=4.0, state_bytes=0.0)
    choices = job(480, micro_batch=8, pipelines=(1, 2, 4, 8), optimizer=holds, precision=Precision.FP32)
    result = run(Problem(model=model, cluster=cluster, job=choices), "piper", SolveOptions())
    assert result.own_objective.value * 8 == pytest.approx(load_s, rel=2 * PIPER_LOAD)
