"""Ranks of a plan."""

import pytest

from stagecut.executor.manual_plan import plan_of
from stagecut.executor.schedule.rank_layout import RankLayout
from stagecut.models import build_cluster
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.schedule import Schedule


def test_every_device_is_one_rank_with_its_part_of_a_stage() -> None:
    """Two stages of 2 replicas x 2 devices and 1 device: ranks 0..3 and 4."""
    layout = RankLayout.of(plan_of((0, 1, 2), replicas=(2, 1), tensor_parallel=(2, 1)))
    parts = [(role.group, role.replica, role.tensor_rank) for role in layout.roles]
    assert parts == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0)]
    assert layout.sharing_ranks(layout.roles[2]) == (2, 3)
    assert layout.copies(0, 1) == (1, 3)


def test_copies_of_a_stage_are_those_of_all_pipelines() -> None:
    """Pipeline 0 has ranks 0 1 2, pipeline 1 has ranks 3 4 5; stage 0 has two replicas in each."""
    layout = RankLayout.of(plan_of((0, 1, 2), replicas=(2, 1), num_pipelines=2))
    assert layout.copies(0, 0) == (0, 1, 3, 4)
    assert layout.copies(1, 0) == (2, 5)


def test_stages_of_a_device_group_are_on_the_same_rank() -> None:
    """Interleaved, two groups of two chunks: stages 0 and 2 on rank 0."""
    layout = RankLayout.of(plan_of((0, 1, 2, 3, 4), schedule=Schedule.INTERLEAVED, chunks=2, num_microbatches=2))
    assert [role.stages for role in layout.roles] == [(0, 2), (1, 3)]


def test_ranks_follow_the_devices_of_the_cluster_so_that_hosts_stay_together() -> None:
    """The first stage is on the second host: it gets the higher rank."""
    cluster = build_cluster("hetpipe-16")
    names = [device.name for device in cluster.devices()]

    def stage(start: int, device: str) -> Stage:
        return Stage(
            start=start,
            stop=start + 1,
            devices=(device,),
            warmup_depth=2 - start,
            forward_micro_batch=1,
            backward_micro_batch=1,
        )

    plan = Plan(
        schedule=Schedule.ONE_F_ONE_B,
        micro_batch=1,
        num_microbatches=2,
        pipelines=(Pipeline(stages=(stage(0, names[5]), stage(1, names[2]))),),
    )
    layout = RankLayout.of(plan, cluster)
    assert [(role.device, role.group) for role in layout.roles] == [(names[2], 1), (names[5], 0)]


def test_parts_of_replicas_tile_any_interval() -> None:
    """Five samples in proportion 1 : 2 are 1 and 4 (5 x 1 // 3 = 1); one sample leaves the first without any."""
    layout = RankLayout.of(plan_of((0, 1), replicas=(2,)), shares=((1, 2),))
    assert [layout.part(0, replica, 10, 15) for replica in (0, 1)] == [(10, 11), (11, 15)]
    assert [layout.part(0, replica, 3, 4) for replica in (0, 1)] == [(3, 3), (3, 4)]


def test_wrong_shares_are_refused() -> None:
    """One share for each replica."""
    with pytest.raises(BadInputError, match="shares must be one positive whole number"):
        RankLayout.of(plan_of((0, 1), replicas=(2,)), shares=((1,),))
