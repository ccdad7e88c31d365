"""What binds in a plan.

Four layers of F = B = 1 s on two hosts, the first on one and three on the other; a message takes 0.5 s; four
micro-batches under 1F1B. Stage 1 begins at 1.5 s and never waits: 4 x 6 s, then a message and a backward of 1 s:

    1 + 0.5 + 24 + 0.5 + 1 = 27 s.
"""

import dataclasses
import math

import numpy as np
import pytest

from stagecut.planner.core.cluster import Link
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.simulator.binding import LinkUse, what_binds
from stagecut.planner.simulator.timeline import simulate
from tests.catalogue import chain, job, one_device_per_server

NETWORK = Link(bandwidth_bytes_per_s=math.inf, latency_s=0.5)
PROBLEM = Problem(
    model=chain(4, {"gpu": 2.0}, saved_bytes=4.0),
    cluster=one_device_per_server("gpu", "gpu", network=NETWORK, memory_bytes=100.0),
    job=job(4),
)


def stage(start, stop, *, device, depth):
    return Stage(
        start=start, stop=stop, devices=(device,), warmup_depth=depth, forward_micro_batch=1, backward_micro_batch=1
    )


STAGES = (stage(0, 1, device="host-0/0", depth=2), stage(1, 4, device="host-1/0", depth=1))
PLAN = Plan(schedule=Schedule.ONE_F_ONE_B, micro_batch=1, num_microbatches=4, pipelines=(Pipeline(stages=STAGES),))


@pytest.fixture
def costs():
    return CostModel(PROBLEM).plan(PLAN)


@pytest.fixture
def binding(costs):
    return what_binds(costs, simulate(costs))


def test_slowest_device_is_the_one_the_critical_path_computes_on(binding):
    """The critical path has the first forward and the last backward of stage 0, all of stage 1, and two messages."""
    assert binding.iteration_s == 27.0
    assert binding.critical_s.tolist() == [2.0, 24.0]
    assert binding.communication_s == 1.0
    assert binding.slowest == 1


def test_devices_are_busy_for_their_work(binding):
    assert binding.busy_s.tolist() == [8.0, 24.0]
    assert binding.share(binding.busy_s[1]) == 24 / 27


def test_largest_row_is_the_one_nearest_to_the_iteration_time(binding):
    """Busy row of stage 1: 1.5 s before, 24 s, 1.5 s after."""
    assert (binding.largest_row.family, binding.largest_row.index, binding.largest_row.seconds) == ("busy", 1, 27.0)


def test_links_are_in_use_for_the_time_of_their_messages(binding):
    """Four messages of 0.5 s in each direction, in the order of the names as all are alike."""
    names = ("host-0:nic-in", "host-0:nic-out", "host-1:nic-in", "host-1:nic-out")
    assert binding.links == tuple(LinkUse(name=name, busy_s=2.0) for name in names)


def test_message_on_a_way_of_its_own_is_named_by_its_stages(costs):
    apart = dataclasses.replace(costs, forward_links=((),), backward_links=((),))
    assert [use.name for use in what_binds(apart, simulate(apart)).links] == [
        "stage 0 to stage 1",
        "stage 1 to stage 0",
    ]


def test_fullest_device_is_the_one_with_least_memory_to_spare(binding):
    """Two micro-batches of one layer of 4 bytes; one micro-batch of three layers."""
    assert binding.memory_bytes.tolist() == [8.0, 12.0]
    assert binding.limit_bytes.tolist() == [100.0, 100.0]
    assert binding.fullest == 1


def test_unlimited_memory_and_no_time_can_be_told(costs):
    still = dataclasses.replace(
        costs,
        forward_s=np.zeros(2),
        backward_s=np.zeros(2),
        transfer_s=np.zeros(1),
        limit_bytes=np.array([math.inf, math.inf]),
    )
    binding = what_binds(still, simulate(still))
    assert binding.links == ()
    assert binding.share(0.0) == 1.0
    assert binding.fullest == 0
