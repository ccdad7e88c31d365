"""What hangs under NCCL's rules: sends that face each other, and the order in which messages were begun once."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from stagecut.executor.execution_plan import ExecutionPlan
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.gradients import groups_of
from stagecut.executor.schedule.messages import Message
from stagecut.executor.schedule.turns import Turn, turns_of
from stagecut.executor.transport.distributed import DistributedTransport
from stagecut.executor.transport.interface import Pending
from stagecut.planner.simulator.action_lists import Op
from tests.executor.nccl.emulated_nccl import DeadlockError, Fabric, Group, Hold, Rank
from tests.executor.nccl.nccl_plays import TOLERANCE, over, worst_difference

RECEIVES_AHEAD = 2
"""Receives begun ahead in each flow, in the order used before."""


def exchange(rank: Rank, groups: Sequence[Group], kinds: Sequence[str]) -> float:
    """Begin a send and a receive of two ranks; give what has come."""
    tensors = {rank.isend: torch.full((1,), float(rank.number)), rank.irecv: torch.zeros(1)}
    batches = [
        rank.P2POp(kind, tensors[kind], 1 - rank.number, group) for kind, group in zip(kinds, groups, strict=True)
    ]
    works = [rank.batch_isend_irecv([batch])[0] for batch in batches]
    for work in works:
        work.wait()
    return float(tensors[rank.irecv])


@pytest.mark.parametrize("num_queues", (1, 2, 8))
def test_sends_of_one_communicator_that_face_each_other_hang(num_queues: int) -> None:
    """Each is over when it is received, which comes behind it (NCCL issue 479). In one order they pass."""

    def work(rank: Rank, *, agrees: bool) -> float:
        group = rank.new_group([0, 1])
        in_order = [rank.isend, rank.irecv] if rank.number == 0 else [rank.irecv, rank.isend]
        exchange(rank, [group, group], in_order)
        return exchange(rank, [group, group], in_order if agrees else [rank.isend, rank.irecv])

    with pytest.raises(DeadlockError, match="for isend on group"):
        Fabric(2, num_queues=num_queues).run(partial(work, agrees=False))
    assert Fabric(2, num_queues=num_queues).run(partial(work, agrees=True)) == [1.0, 0.0]


def test_communicators_used_in_unlike_orders_hang_where_they_share_a_queue() -> None:
    """With a queue each they pass (NCCL issue 783: streams need not go on independently of each other)."""

    def work(rank: Rank) -> float:
        there, back = (rank.new_group([0, 1]) for _ in range(2))
        kinds = [rank.isend, rank.irecv] if rank.number == 0 else [rank.irecv, rank.isend]
        exchange(rank, [there, back], kinds)
        return exchange(rank, *([there, back], kinds) if rank.number == 0 else ([back, there], kinds[::-1]))

    with pytest.raises(DeadlockError, match="for isend on group"):
        Fabric(2, num_queues=1).run(work)
    assert Fabric(2, num_queues=2).run(work) == [1.0, 0.0]


def test_first_uses_of_communicators_in_unlike_orders_hang() -> None:
    """The first use holds up the host until the other side is there, however many queues there are."""

    def work(rank: Rank) -> None:
        groups = [rank.new_group([0, 1]) for _ in range(2)]
        for group in groups if rank.number == 0 else groups[::-1]:
            rank.all_reduce(torch.zeros(1), group=group)

    with pytest.raises(DeadlockError, match="rank 0 waits to connect"):
        Fabric(2, num_queues=8).run(work)


class FlowTransport(DistributedTransport):
    """The former transport: one communicator per flow, set up by its first message."""

    def __init__(self, rank: Rank, execution: ExecutionPlan) -> None:
        groups = groups_of(execution.layout, execution.tied)
        super().__init__(tagged=False, groups=groups, pairs=(), distributed=rank)
        flows: dict[tuple[int, int, Op, int], None] = {}
        for pipeline in range(execution.layout.num_pipelines):
            for turns in turns_of(execution.lists, execution.layout, pipeline=pipeline).values():
                flows |= {_flow(message): None for turn in turns for message in turn.sends if not message.is_local}
        self._flows = {flow: rank.new_group(sorted(flow[:2])) for flow in flows}

    def _begin(self, kind: Any, peer: int, message: Message, tensors: Sequence[Tensor]) -> list[Pending]:
        group = self._flows[_flow(message)]
        batches = [[self._dist.P2POp(kind, tensor, peer, group)] for tensor in tensors]
        return [pending for batch in batches for pending in self._dist.batch_isend_irecv(batch)]


def _flow(message: Message) -> tuple[int, int, Op, int]:
    return message.source, message.target, message.op, message.stage


def as_before(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """The former order: receives begin two turns ahead in every flow, sends at once."""
    flows: dict[tuple[Op, int], list[int]] = defaultdict(list)
    for index, turn in enumerate(turns):
        for flow in dict.fromkeys((message.op, message.stage) for message in turn.receives if not message.is_local):
            flows[flow].append(index)
    posts: dict[int, list[Message]] = defaultdict(list)
    for flow, indices in flows.items():
        for place, index in enumerate(indices):
            own = (message for message in turns[index].receives if not message.is_local)
            early = indices[place - RECEIVES_AHEAD] if place >= RECEIVES_AHEAD else 0
            posts[early] += [message for message in own if (message.op, message.stage) == flow]
    return tuple(
        replace(
            turn,
            posts=tuple(posts[index]),
            begins=tuple(message for message in turn.sends if not message.is_local),
        )
        for index, turn in enumerate(turns)
    )


def built_as_before(rank: Rank, execution: ExecutionPlan) -> Pipeline:
    pipeline = over(rank, execution, FlowTransport(rank, execution))
    pipeline.turns, pipeline.forward_turns = as_before(pipeline.turns), as_before(pipeline.forward_turns)
    return pipeline


@pytest.mark.parametrize("num_queues", (1, 2, 8))
def test_the_order_of_before_hangs_at_its_first_step(num_queues: int) -> None:
    """The first stage waits for the next one at their flow of gradients, which waits for it at that of activations."""
    plan = plan_of((0, 3, 6), num_microbatches=4)
    with pytest.raises(DeadlockError, match=r"rank 0 waits to connect .* rank 1 waits to connect"):
        worst_difference(plan, num_queues=num_queues, build=stepping_as_before)


def stepping_as_before(rank: Rank, execution: ExecutionPlan) -> Pipeline:
    pipeline = built_as_before(rank, execution)
    pipeline.evaluate = lambda _: 0.0
    return pipeline


def connected_as_before(rank: Rank, execution: ExecutionPlan) -> Pipeline:
    """The former order with communicators that are all set up beforehand."""
    pipeline = built_as_before(rank, execution)
    for flow, group in pipeline.transport._flows.items():
        if rank.number in flow[:2]:
            kind, peer = ("isend", flow[1]) if rank.number == flow[0] else ("irecv", flow[0])
            rank.batch_isend_irecv([rank.P2POp(kind, torch.zeros(1), peer, group)])[0].wait()
    return pipeline


def test_the_order_of_before_hangs_on_one_launch_queue() -> None:
    """Of two receives that wait in one stream the second cannot start, and holds up the forward behind it."""
    plan = plan_of((0, 3, 6), num_microbatches=4)
    rules = {"num_queues": 1, "hold": Hold.UNTIL_STARTED, "build": connected_as_before}
    with pytest.raises(DeadlockError, match="rank 0 waits to compute"):
        worst_difference(plan, **rules)
    assert worst_difference(plan, **(rules | {"num_queues": 8})) < TOLERANCE
