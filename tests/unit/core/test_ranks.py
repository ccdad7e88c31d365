"""Which shares of a cluster have ranks that launchers can give: two hosts of four devices each."""

import pytest

from stagecut.planner.core.cluster import UNLIMITED, Cluster, DeviceType, Island, Server
from stagecut.planner.core.frameworks import RankOrder
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.ranks import is_placeable
from stagecut.planner.core.share import WHOLE, Share

GPU = DeviceType(
    name="gpu",
    peak_flops_per_s=((Precision.FP16, 1.0),),
    memory_bytes=1.0,
    memory_bandwidth_bytes_per_s=1.0,
)
CLUSTER = Cluster(
    name="two hosts",
    device_types=(GPU,),
    servers=(
        Server(name="host", islands=(Island(device_type="gpu", count=4, fabric=UNLIMITED),), count=2, nic=UNLIMITED),
    ),
    network=UNLIMITED,
)
STAGES_LAST, COPIES_LAST = RankOrder
A_HOST_EACH = Share(num_pipelines=2, host_splits=(2,))
HALVES_OF_HOSTS = Share(num_pipelines=2, host_splits=(1,))


@pytest.mark.parametrize(
    ("share", "order", "replicas", "tensor_parallel", "placeable"),
    [
        # One pipeline: stages follow one another on the hosts, replicas of a stage too.
        (WHOLE, STAGES_LAST, 2, 1, True),
        # Stage 0 of both pipelines before stage 1: ranks 0, 2, ... of host 0 alternate with those of host 1.
        (A_HOST_EACH, STAGES_LAST, 1, 1, False),
        # ... unless a host has room for a single stage only.
        (A_HOST_EACH, STAGES_LAST, 1, 4, True),
        # All of a pipeline, on its single host, before the next one.
        (A_HOST_EACH, COPIES_LAST, 1, 1, True),
        (A_HOST_EACH, COPIES_LAST, 2, 1, True),
        # Both pipelines are on each host: a stage of both, then the next one; but pipeline 0 spans both hosts.
        (HALVES_OF_HOSTS, STAGES_LAST, 1, 1, True),
        (HALVES_OF_HOSTS, COPIES_LAST, 1, 1, False),
        # A stage on the halves of both hosts: pipeline 0 leaves host 0 and pipeline 1 comes back to it.
        (HALVES_OF_HOSTS, STAGES_LAST, 4, 1, False),
    ],
)
def test_every_host_has_ranks_in_a_row(share, order, replicas, tensor_parallel, placeable):
    degrees = {"replicas": replicas, "tensor_parallel": tensor_parallel}
    assert is_placeable(CLUSTER, share, (order,), **degrees) is placeable
