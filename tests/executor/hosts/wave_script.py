"""Two virtual workers over two hosts, each with a parameter server, as a script under torchrun."""

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from stagecut.executor.ranks.world import join_world
from stagecut.executor.waves.loading import load_waves
from stagecut.executor.waves.setting.data import sharded
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Server
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.model import Layer, ModelProfile
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from tests.executor.waves.wave_plans import MSE, layers, plan_of, samples, worker_of

ADAM = partial(torch.optim.Adam, lr=0.01)
NUM_WAVES, TIMEOUT_S = 4, 60.0


def plan():
    """A worker of one stage on the first host, and one of two stages over both; layers owned in turn."""
    own = worker_of("host0", (0, 4), in_flight=2)
    both = worker_of("host0", (0, 2, 4), in_flight=2)
    return plan_of(own, moved(both, ("host0/1", "host1/0")))


def moved(worker, devices):
    """The same worker on other devices."""
    stages = tuple(replace(stage, devices=(name,)) for stage, name in zip(worker.stages, devices, strict=True))
    return replace(worker, stages=stages)


def problem():
    """Two devices on the first host, one on the second."""
    precision = Precision.FP32
    kind = DeviceType(name="core", peak_flops_per_s=((precision, 1.0),), memory_bytes=1.0)
    servers = tuple(
        Server(name=f"host{host}", islands=(Island(device_type="core", count=2 - host),)) for host in range(2)
    )
    profile = ModelProfile(
        name="layers", layers=tuple(Layer(name=f"layer{index}") for index in range(4)), precision=precision
    )
    return Problem(
        model=profile,
        cluster=Cluster(name="two-hosts", device_types=(kind,), servers=servers),
        job=Job(global_batch=8, optimizer=standard_optimizer("adamw", precision), precision=precision),
    )


def main(path):
    world = join_world(device="cpu", timeout_s=TIMEOUT_S)
    rank = load_waves(plan(), layers(), MSE, ADAM, problem=problem(), world=world)
    report = rank.train(sharded(samples(12), plan()), num_waves=NUM_WAVES)
    gathered = world.gather([list(report.losses), report.clock, str(rank.role)])
    if gathered is not None:
        Path(path).write_text(json.dumps(gathered))
    world.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
