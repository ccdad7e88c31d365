"""Ranks that torchrun can place: consecutive ones on every host."""

from dataclasses import replace

import pytest

from stagecut.planner.core.frameworks import RankOrder
from stagecut.planner.core.layer_graphs.degrees import roles_of_stages
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.io.writers.deepspeed import deepspeed_tree
from stagecut.planner.io.writers.launch import launch_lines
from stagecut.planner.io.writers.megatron import megatron_arguments
from stagecut.planner.io.writers.ranks import RankedDevices, ranked
from tests.exported_plans import CASES, built

BOTH = tuple(RankOrder)


def on(case, devices):
    """The plan of a case with the devices of its stages, pipeline by pipeline."""
    problem, plan = built(case)
    pipelines = []
    for pipeline, own in zip(plan.pipelines, devices, strict=True):
        stages = (replace(stage, devices=names) for stage, names in zip(pipeline.stages, own, strict=True))
        pipelines.append(replace(pipeline, stages=tuple(stages)))
    return problem, replace(plan, pipelines=tuple(pipelines))


def placed(case, devices, orders=BOTH):
    problem, plan = on(case, devices)
    return ranked(plan, roles_of_stages(problem.model, plan.stages), orders)


TWO = replace(CASES["bert-large on one server"], replicas=2)
FOUR = replace(CASES["llama with pipelines inside of servers"], tp=1)


def test_stages_are_slowest_where_that_can_be_placed():
    """Two replicas of two stages, each stage on a host of its own."""
    ranked_devices, is_possible = placed(TWO, [[("a/0", "a/1"), ("b/0", "b/1")]])
    assert is_possible
    assert ranked_devices == RankedDevices(order=RankOrder.STAGES_LAST, devices=("a/0", "a/1", "b/0", "b/1"))


def test_copies_on_hosts_of_their_own_are_slowest():
    """Replica 0 has the first device of each stage: those of host a."""
    ranked_devices, is_possible = placed(TWO, [[("a/0", "b/0"), ("a/1", "b/1")]])
    assert is_possible
    assert ranked_devices == RankedDevices(order=RankOrder.COPIES_LAST, devices=("a/0", "a/1", "b/0", "b/1"))
    _, is_possible = placed(TWO, [[("a/0", "b/0"), ("a/1", "b/1")]], (RankOrder.STAGES_LAST,))
    assert not is_possible


def test_pipelines_that_take_turns_on_hosts_are_counted_in_another_order():
    """Pipelines 0 and 2 on hosts a and c, 1 and 3 on b and d: 0, 2, 1, 3 gives each host two consecutive ranks."""
    devices = [[("a/0",), ("c/0",)], [("b/0",), ("d/0",)], [("a/1",), ("c/1",)], [("b/1",), ("d/1",)]]
    ranked_devices, is_possible = placed(FOUR, devices)
    assert is_possible
    assert ranked_devices.devices == ("a/0", "a/1", "b/0", "b/1", "c/0", "c/1", "d/0", "d/1")


def test_devices_of_a_host_may_come_in_any_order():
    ranked_devices, is_possible = placed(TWO, [[("a/3", "a/1"), ("a/0", "b/0")]])
    assert is_possible
    assert [(host.name, host.first_rank, host.slots) for host in ranked_devices.hosts] == [
        ("a", 0, (3, 1, 0)),
        ("b", 3, (0,)),
    ]


@pytest.mark.parametrize("write", [megatron_arguments, deepspeed_tree])
def test_ranks_that_no_order_places_are_refused(write):
    """Each of two hosts has stage 0 of one pipeline and stage 1 of the other: a b b a or b a a b in either order."""
    case = replace(FOUR, pipelines=2)
    problem, plan = on(case, [[("a/0",), ("b/0",)], [("b/1",), ("a/1",)]])
    with pytest.raises(UnsupportedError, match="host a would need 0, 3, whatever the order of hosts"):
        write(problem, plan)


def test_each_host_has_a_line_with_its_number_of_processes():
    ranked_devices = RankedDevices(order=RankOrder.STAGES_LAST, devices=("fast/1", "fast/0", "slow/0"))
    assert list(launch_lines(ranked_devices, "train.py --x", environment={"A": "1"})) == [
        "# on fast: ranks 0 to 1",
        "CUDA_VISIBLE_DEVICES=1,0 A=1 torchrun --nnodes 2 --node-rank 0 --nproc-per-node 2 "
        '--master-addr "$MASTER" --master-port 29500 train.py --x',
        "# on slow: rank 2",
        "CUDA_VISIBLE_DEVICES=0 A=1 torchrun --nnodes 2 --node-rank 1 --nproc-per-node 1 "
        '--master-addr "$MASTER" --master-port 29500 train.py --x',
    ]
