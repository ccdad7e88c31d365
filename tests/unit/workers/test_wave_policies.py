"""HetPipe's allocations, and devices and owners for workers."""

from dataclasses import replace

import numpy as np
import pytest

from stagecut.models import build_cluster, build_model
from stagecut.planner.core.job import Job, WaveChoices, standard_optimizer
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.waves import Allocation, ShardPlacement
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.workers.building import seats_of
from stagecut.planner.workers.policies import seats_by_policy
from stagecut.planner.workers.rows.kinds import Kinds
from stagecut.planner.workers.rows.owners import owners_of, shard_of_layers
from stagecut.planner.workers.rows.row_tables import RowTables
from stagecut.planner.workers.solving import solve_waves


def hetpipe_16(**choices):
    """VGG-19 on the paper's cluster, in single precision with momentum."""
    return Problem(
        model=build_model("vgg19", precision=Precision.FP32),
        cluster=build_cluster("hetpipe-16"),
        job=Job(
            global_batch=512,
            optimizer=standard_optimizer("sgd", Precision.FP32),
            precision=Precision.FP32,
            micro_batches=(32,),
            waves=WaveChoices(**choices),
        ),
    )


def patterns(policy, problem=None):
    """Devices by class (V, R, G, Q) of each worker of a policy."""
    problem = problem or hetpipe_16()
    seats = seats_by_policy(RowTables(problem, Kinds(problem)), policy)
    names = [name for own in seats for island in own for name in island]
    assert len(set(names)) == len(names)
    return [tuple(map(len, own)) for own in seats]


def without(problem, *classes):
    """The problem without some of the cluster's classes."""
    servers = tuple(own for index, own in enumerate(problem.cluster.servers) if index not in classes)
    return replace(problem, cluster=replace(problem.cluster, servers=servers))


def test_node_partition_gives_every_worker_a_host():
    assert patterns(Allocation.NODE_PARTITION) == [(4, 0, 0, 0), (0, 4, 0, 0), (0, 0, 4, 0), (0, 0, 0, 4)]


def test_equal_distribution_gives_every_worker_a_device_of_each_host():
    assert patterns(Allocation.EQUAL_DISTRIBUTION) == [(1, 1, 1, 1)] * 4


def test_hybrid_joins_the_fastest_host_with_the_slowest():
    # Peaks in Tflop/s times efficiencies: 7.45, 8.15, 3.23, 3.71. R with G and V with Q, as in the paper.
    assert patterns(Allocation.HYBRID) == [(0, 2, 2, 0)] * 2 + [(2, 0, 0, 2)] * 2


def test_hybrid_leaves_the_host_in_the_middle_to_one_worker():
    assert patterns(Allocation.HYBRID, without(hetpipe_16(), 2)) == [(0, 2, 2)] * 2 + [(4, 0, 0)]  # V, R and Q


def test_a_policy_that_makes_another_number_of_workers_is_refused():
    with pytest.raises(BadInputError, match="num_workers must be auto or 4"):
        solve_waves(hetpipe_16(allocation=Allocation.NODE_PARTITION, num_workers=3), SolveOptions())


def test_workers_get_as_few_hosts_as_possible():
    server = replace(build_cluster("hetpipe-16").servers[0], name="v", count=2)
    cluster = replace(build_cluster("hetpipe-16"), servers=(server,))
    # The largest takes a host of its own, the others share the second one.
    assert seats_of(cluster, [(1,), (3,), (3,)]) == [
        (("v-0/3",),),
        (("v-0/0", "v-0/1", "v-0/2"),),
        (("v-1/0", "v-1/1", "v-1/2"),),
    ]


def test_spread_owners_have_runs_of_layers_the_largest_as_small_as_possible():
    problem = hetpipe_16()
    tables = RowTables(problem, Kinds(problem))
    shards, params = shard_of_layers(tables.model), tables.model.layer_params
    assert np.all(np.diff(shards) >= 0)
    assert len(set(shards.tolist())) == 4
    # The first classifier alone has 72 % of the parameters.
    assert np.bincount(shards, weights=params).max() == params.max()


def test_local_owners_are_where_most_workers_hold_the_layer():
    problem = hetpipe_16(allocation=Allocation.EQUAL_DISTRIBUTION, in_flight=2, shards=ShardPlacement.LOCAL)
    plan = solve_waves(problem, SolveOptions()).plan
    stages = plan.workers[0].stages
    # All four workers have the same stages, each on another device of the same host.
    expected = [own.devices[0].rpartition("/")[0] for own in stages for _ in range(own.start, own.stop)]
    assert list(plan.owners) == expected
    tables = RowTables(problem, Kinds(problem))
    assert sorted(set(owners_of(tables.model, plan.workers, ShardPlacement.SPREAD))) == sorted(
        ["quadro-p4000", "rtx-2060", "titan-rtx", "titan-v"]
    )
