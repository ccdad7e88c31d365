"""Small random problems on equal servers of one kind of device, for the planners of papers that know no other."""

import numpy as np

from stagecut.planner.core.cluster import UNLIMITED, Cluster, Island, Link, Server
from stagecut.planner.core.job import Job, Optimizer, Recompute
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from tests.catalogue import kinds

SHAPES = ((1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (4, 1), (3, 2), (2, 3))
"""Servers, and devices in each."""
SMALL = Optimizer(name="small", weight_bytes=1.0, gradient_bytes=1.0, state_bytes=2.0)


def random_uniform_problem(seed, *, max_layers=5):
    """Any choice of the job occurs; all numbers are small, so that ties and exactly full memories occur."""
    rng = np.random.default_rng(seed)
    servers, per_server = SHAPES[rng.integers(len(SHAPES))]
    micro_batch, num_microbatches = int(rng.choice((1, 2, 4))), int(rng.integers(1, 6))
    pipelines = int(rng.choice((1, 1, 1, 2))) if servers * per_server % 2 == 0 else 1
    return Problem(
        model=_model(rng, int(rng.integers(1, max_layers + 1))),
        cluster=_cluster(rng, servers, per_server),
        job=Job(
            global_batch=pipelines * micro_batch * num_microbatches,
            optimizer=SMALL,
            micro_batches=(micro_batch,),
            schedules=(Schedule.ONE_F_ONE_B,),
            recompute=list(Recompute)[int(rng.choice((0, 0, 1, 2)))],
            tensor_parallel=(1, 2) if rng.integers(2) else None,
            pipelines=(pipelines,),
            zero1=bool(rng.integers(2)),
        ),
    )


def _model(rng, num_layers):
    shareable = rng.integers(2)
    return ModelProfile(name="random", layers=tuple(_layer(rng, index, shareable) for index in range(num_layers)))


def _layer(rng, index, shareable):
    seconds = np.cumsum(rng.integers(0, 6, size=(2, 2)), axis=1).tolist()
    times = TimeTable(device_type="gpu", samples=(1, 4), forward_s=tuple(seconds[0]), backward_s=tuple(seconds[1]))
    params, saved, output, working, shared = rng.choice((0.0, 1.0, 2.0, 4.0), size=5)
    return Layer(
        name=f"layer-{index}",
        params_bytes=params,
        saved_bytes=saved,
        output_bytes=output,
        working_bytes=working,
        tensor_parallel_bytes=shared if shareable else None,
        times=(times,),
    )


def _cluster(rng, servers, per_server):
    memory_bytes = float(rng.choice((np.inf, 12.0, 24.0, 40.0, 80.0)))
    island = Island(device_type="gpu", count=per_server, fabric=_link(rng), shared=bool(rng.integers(2)))
    server = Server(name="host", count=servers, islands=(island,), nic=_link(rng))
    return Cluster(name="random", device_types=kinds(gpu=memory_bytes), servers=(server,))


def _link(rng):
    return UNLIMITED if rng.integers(2) else Link(bandwidth_bytes_per_s=float(rng.choice((1.0, 4.0, 16.0))))
