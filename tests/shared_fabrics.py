"""Random problems on whose fabrics the first forwards queue."""

from dataclasses import replace

from stagecut.planner.core.cluster import Cluster, Island, Link, Server
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from tests.catalogue import WEIGHTS_ONLY, chain, job, kinds, layer


def on_shared_fabrics(random):
    """Hosts with a device for most layers, whose messages queue on their fabrics; ties are frequent."""
    islands = [
        Island(
            device_type="gpu",
            count=int(random.integers(2, 5)),
            fabric=Link(bandwidth_bytes_per_s=float(random.choice([1, 2]))),
            shared=bool(random.random() < 0.8),
        )
        for _ in range(4)
    ]
    servers = [Server(name=f"server{index}", islands=tuple(islands[index : index + 1])) for index in range(2)]
    if random.random() < 0.3:
        servers[0] = replace(servers[0], islands=tuple(islands[2:]), bridge=Link(bandwidth_bytes_per_s=2.0))
    if random.random() < 0.7:
        servers[1] = replace(servers[1], nic=Link(bandwidth_bytes_per_s=float(random.choice([1, 4]))))
    layers = tuple(
        layer(
            f"layer-{index}",
            {"gpu": float(random.choice([1, 2, 2, 4, 6]))},
            params_bytes=2.0,
            output_bytes=float(random.choice([0, 1, 2, 2, 4])),
        )
        for index in range(int(random.integers(4, 8)))
    )
    schedule = random.choice([Schedule.EAGER_ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B, Schedule.ONE_F_ONE_B])
    return Problem(
        model=replace(chain(1, {"gpu": 1.0}), layers=layers),
        cluster=Cluster(name="fabrics", device_types=kinds(gpu=float(random.choice([1, 2]))), servers=tuple(servers)),
        job=job(int(random.integers(2, 9)), schedule=schedule, optimizer=WEIGHTS_ONLY, replicas=(1,)),
    )
