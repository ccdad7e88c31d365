"""Least costs of stages for the fluid bound: one table over all intervals of layers for each way to compute a stage."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.share import WHOLE
from stagecut.planner.cost.stage_costs import StageCostModel, StageCosts, first_fitting
from stagecut.planner.network.arrangement import RECOMPUTE_MODES


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOption:
    """A way to compute stages: on t devices of one island, u samples at a time.

    Tables are of shape (L + 1, L + 1), by first layer and end; infinite where the stage does not fit in memory with one
    micro-batch in flight, and where it is empty.
    """

    island: int
    """Index among all islands of the cluster."""
    devices: int
    """t."""
    samples: int
    """u."""
    forward_s: Floats
    pass_s: Floats
    """F + B of u samples, recomputation included."""
    update_s: Floats
    sync_s: Floats
    """The least that an all-reduce with any other holder of the layers takes."""


def islands_of(cluster: Cluster) -> tuple[tuple[int, int], ...]:
    """Server class and index in it of every island."""
    return tuple((index, own) for index, server in enumerate(cluster.servers) for own in range(len(server.islands)))


def num_devices(cluster: Cluster) -> Ints:
    """Devices of each island, over all hosts of its class."""
    pairs = islands_of(cluster)
    return np.array([cluster.servers[index].count * cluster.servers[index].islands[own].count for index, own in pairs])


def stage_options(problem: Problem) -> Iterator[StageOption]:
    """Every island, tensor-parallel degree that fits in it, and divisor of a micro-batch size."""
    costs = StageCostModel(problem, WHOLE, problem.cluster)
    samples = sorted({size // r for size in problem.job.micro_batches for r in range(1, size + 1) if size % r == 0})
    for index, (server_class, island) in enumerate(islands_of(problem.cluster)):
        count = problem.cluster.servers[server_class].islands[island].count
        for degree in problem.tensor_parallel_degrees:
            if degree <= count:
                placement = Placement(server_class=server_class, island=island, tensor_parallel=degree)
                for size in samples:
                    yield _option(problem, costs, placement, index, size)


def _option(problem: Problem, costs: StageCostModel, placement: Placement, island: int, samples: int) -> StageOption:
    num_layers, optimizer = problem.model.num_layers, problem.job.optimizer
    start, stop = np.triu_indices(num_layers + 1, k=1)

    def modes() -> Iterator[tuple[bool, StageCosts]]:
        for recompute in RECOMPUTE_MODES[problem.job.recompute]:
            yield (
                recompute,
                costs.stages(placement, micro_batch=samples, recompute=recompute, start=start, stop=stop),
            )

    forward_s, pass_s = np.full((2, num_layers + 1, num_layers + 1), np.inf)
    update_s, sync_s = np.zeros((2, num_layers + 1, num_layers + 1))
    limit_bytes = costs.device_type(placement).memory_bytes
    for _, found, fits in first_fitting(modes(), np.ones_like(start), limit_bytes):
        rows = start[fits], stop[fits]
        forward_s[rows] = found.forward_s[fits]
        pass_s[rows] = (found.forward_s + found.backward_s)[fits]
        update_s[rows] = found.update_s[fits]
        gradients = found.static_bytes[fits] * optimizer.gradient_bytes / max(optimizer.total_bytes, 1e-300)
        sync_s[rows] = gradients / _best_bytes_per_s(problem.cluster, placement)
    return StageOption(
        island=island,
        devices=placement.tensor_parallel,
        samples=samples,
        forward_s=forward_s,
        pass_s=pass_s,
        update_s=update_s,
        sync_s=sync_s,
    )


def _best_bytes_per_s(cluster: Cluster, placement: Placement) -> float:
    """No message reaches a device faster; unlimited where links are measured."""
    server = cluster.servers[placement.server_class]
    links = [server.nic, *(island.fabric for island in server.islands), *([server.bridge] if server.bridge else ())]
    return float("inf") if cluster.has_tables else max(link.bandwidth_bytes_per_s for link in links)
