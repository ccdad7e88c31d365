"""What each rank receives and sends."""

import itertools
import random
from collections import Counter
from graphlib import TopologicalSorter

import pytest

from stagecut.executor.manual_plan import plan_of
from stagecut.executor.schedule.messages import Message
from stagecut.executor.schedule.order import RankStep, moments_of
from stagecut.executor.schedule.rank_layout import RankLayout, message_sizes
from stagecut.executor.schedule.turns import Turn, turns_of
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.simulator.action_lists import Op, plan_actions, stage_actions
from stagecut.planner.simulator.compilation import compile_actions
from tests.executor.plans import random_plan

KINDS = {TaskKind.SEND_FORWARD: Op.FORWARD, TaskKind.SEND_BACKWARD: Op.BACKWARD}


def turns(plan, **options) -> dict[int, tuple[Turn, ...]]:
    """Turns of the first pipeline."""
    return turns_of(plan_actions(plan), RankLayout.of(plan, **options), pipeline=0)


def sent(own: tuple[Turn, ...]) -> list[Message]:
    return [message for turn in own for message in turn.sends]


def test_equal_micro_batches_travel_as_one_message_each_way() -> None:
    """Two stages, three micro-batches: three activations there, three gradients back."""
    played = turns(plan_of((0, 1, 2), num_microbatches=3))
    assert [(m.op, m.lo, m.hi, m.target) for m in sent(played[0])] == [(Op.FORWARD, lo, lo + 2, 1) for lo in (0, 2, 4)]
    assert [(m.op, m.lo, m.hi, m.target) for m in sent(played[1])] == [(Op.BACKWARD, lo, lo + 2, 0) for lo in (0, 2, 4)]


def parts(own: tuple[Turn, ...]) -> list[tuple[int, int, int]]:
    return [(part.lo, part.hi, message.target) for message in sent(own) for part in message.parts]


def test_replicas_exchange_the_samples_they_have_in_common() -> None:
    """Six samples: two replicas hold [0, 3) and [3, 6), three of the next stage [0, 2), [2, 4) and [4, 6)."""
    played = turns(plan_of((0, 1, 2), micro_batch=6, num_microbatches=1, replicas=(2, 3)))
    assert parts(played[0]) == [(0, 2, 2), (2, 3, 3)]
    assert parts(played[1]) == [(3, 4, 3), (4, 6, 4)]


def test_a_joint_backward_undoes_two_half_forwards() -> None:
    """The second stage runs [0, 1) and [1, 2) forward and [0, 2) backward: their gradients travel together."""
    plan = plan_of((0, 1, 2), num_microbatches=2)
    lists = [stage_actions(s, [1, 1, 2], [2, 2], depth=2 * (2 - s)) for s in range(2)]
    played = turns_of(lists, RankLayout.of(plan), pipeline=0)
    backward = next(turn for turn in played[1] if turn.action.op is Op.BACKWARD)
    assert [(m.lo, m.hi) for m in backward.sends] == [(0, 2)]
    assert parts((backward,)) == [(0, 1, 0), (1, 2, 0)]
    assert len(backward.pieces) == 2


SUBLOTS = plan_of(
    (0, 1, 2),
    schedule=Schedule.GPIPE,
    micro_batch=7,
    num_microbatches=1,
    sizes=((2, 6), (3, 6)),
    messages=((5, 4),),
)
"""Forwards of 2 samples are sent in messages of 5 and taken in forwards of 3; gradients of 6 travel in fours."""


def labels(messages: tuple[Message, ...]) -> list[str]:
    return [f"{message.op} [{message.lo}, {message.hi})" for message in messages]


def test_a_message_leaves_when_its_last_sample_is_computed() -> None:
    """Activations [0, 5) with the third forward, [4, 6); [5, 7) with the fourth.

    Gradients of [0, 6) leave as [0, 4); [4, 7) is complete with the last sample.
    """
    first, second = turns(SUBLOTS).values()
    assert [labels(turn.fills) for turn in first if turn.action.op is Op.FORWARD] == [
        ["F [0, 5)"],
        ["F [0, 5)"],
        ["F [0, 5)", "F [5, 7)"],
        ["F [5, 7)"],
    ]
    assert [labels(turn.sends) for turn in first] == [[], [], ["F [0, 5)"], ["F [5, 7)"], [], []]
    assert [labels(turn.sends) for turn in second if turn.action.op is Op.BACKWARD] == [["B [0, 4)"], ["B [4, 7)"]]


def test_an_action_waits_for_all_messages_with_samples_of_it_once() -> None:
    """Forwards [0, 3), [3, 6) and [6, 7) of the second stage take [0, 5), then [5, 7), of which the last has a part."""
    first, second = turns(SUBLOTS).values()
    assert [labels(turn.receives) for turn in second] == [["F [0, 5)"], ["F [5, 7)"], [], [], []]
    assert [labels(turn.receives) for turn in first[4:]] == [["B [0, 4)", "B [4, 7)"], []]


def test_a_message_is_cut_by_the_forwards_at_both_ends() -> None:
    """[0, 5) comes from forwards that end at 2, 4 and 6, for forwards that end at 3 and 6."""
    message = turns(SUBLOTS)[0][2].sends[0]
    assert [(part.lo, part.hi) for part in message.parts] == [(0, 2), (2, 3), (3, 4), (4, 5)]
    assert [(part.sent.lo, part.taken.lo) for part in message.parts] == [(0, 0), (2, 0), (2, 3), (4, 3)]


def test_messages_are_those_of_the_simulator() -> None:
    """Whatever the sizes, replicas and pipelines: the same samples cross every boundary together."""
    draw = random.Random(6)
    for _ in range(60):
        plan = random_plan(draw, num_layers=6, max_ranks=12)
        graph = compile_actions(plan_actions(plan), message_sizes(plan))
        tasks = [index for index, kind in enumerate(graph.kind) if kind in KINDS]
        expected = {(KINDS[graph.kind[i]], graph.stage[i], graph.lo[i], graph.hi[i]) for i in tasks}
        found = {message[:4] for own in turns(plan).values() for message in sent(own)}
        assert found == expected, plan


def test_gradients_come_from_one_device_of_a_shared_replica() -> None:
    """The second stage is shared by ranks 1 and 2: both get the activation, one sends the gradient."""
    played = turns(plan_of((0, 1, 2), num_microbatches=1, tensor_parallel=(1, 2)))
    assert [m.target for m in sent(played[0])] == [1, 2]
    assert [len(sent(played[rank])) for rank in (1, 2)] == [1, 0]


def begun(own: tuple[Turn, ...]) -> list[list[Message]]:
    """What a rank begins before its first turn and after each one."""
    posts = [*(list(turn.posts) for turn in own), []]
    return [[*before, *after] for before, after in zip([[], *(turn.begins for turn in own)], posts, strict=True)]


def test_a_receive_begins_before_the_action_during_which_its_message_sets_out() -> None:
    """1F1B on two stages; F takes 2 and B 4, for micro-batches of two samples.

    The first stage ends F F B F B B at 2, 4, 12, 14, 18 and 24, the second one F B F B F B at 4, 8, 10, 14, 16
    and 20. So activations set out at 2, 4 and 14, gradients at 8, 14 and 20. At 14 a gradient and an activation
    face each other: by number the gradient of micro-batch 1 is before the activations of micro-batch 2.
    """
    played = turns(plan_of((0, 1, 2), num_microbatches=3))
    names = {rank: [[f"{m.op}{m.lo // 2}" for m in part] for part in begun(own)] for rank, own in played.items()}
    assert [str(turn.action.op) for turn in played[0]] == ["F", "F", "B", "F", "B", "B"]
    assert names[0] == [[], ["F0"], ["F1", "B0"], [], ["B1", "F2"], ["B2"], []]
    assert names[1] == [["F0"], ["F1"], ["B0"], [], ["B1", "F2"], [], ["B2"]]


def test_all_ranks_begin_messages_in_one_order() -> None:
    """Turns and messages of all ranks, each behind the one before it on its rank, go round in no circle.

    Ranks that share a replica have a turn in common: they meet in its collectives.
    """
    draw = random.Random(4)
    for _ in range(60):
        plan = random_plan(draw, num_layers=6, max_ranks=12)
        layout = RankLayout.of(plan)
        played = turns(plan)
        sorter: TopologicalSorter[object] = TopologicalSorter()
        for rank, own in played.items():
            sharing = layout.sharing_ranks(layout.roles[rank])
            turn_names = [(sharing, index) for index in range(len(own))]
            line = [name for part, turn in zip(begun(own), [*turn_names, None], strict=True) for name in (*part, turn)]
            for before, after in itertools.pairwise(line[:-1]):
                sorter.add(after, before)
        sorter.prepare()  # raises CycleError


def test_turns_of_lists_that_wait_for_each_other_are_refused() -> None:
    """The checker refuses them first; the clock would stand still."""
    stuck = [RankStep(duration=1, needs=[0], sends=[1])], [RankStep(duration=1, needs=[1], sends=[0])]
    with pytest.raises(ValueError, match="wait for each other"):
        moments_of(stuck)


def test_every_message_of_a_random_plan_is_sent_once_taken_once_and_begun_in_time() -> None:
    """Sends are released at most once, and only when the receiver has gone on and something has come back."""
    draw = random.Random(3)
    for _ in range(60):
        plan = random_plan(draw, num_layers=6, max_ranks=12)
        played = turns(plan)
        takes = Counter(m.number for own in played.values() for turn in own for m in turn.receives)
        sends = Counter(m.number for own in played.values() for m in sent(own))
        assert takes == sends
        assert set(takes.values()) <= {1}
        for own in played.values():
            _check_begun(own)
            _check_releases(own, played)


def _check_begun(own: tuple[Turn, ...]) -> None:
    """Receives before the turn that waits for them, sends behind the one that computes them, all once."""
    seen: list[int] = []
    for turn in own:
        seen += [message.number for message in turn.posts]
        assert {message.number for message in turn.receives if not message.is_local} <= set(seen)
        assert not {message.number for message in turn.sends} & set(seen)
        seen += [message.number for message in turn.begins]
        assert {message.number for message in turn.sends if not message.is_local} <= set(seen)
    both = [message for turn in own for message in (*turn.receives, *turn.sends) if not message.is_local]
    assert sorted(seen) == sorted(message.number for message in both)


def _check_releases(own: tuple[Turn, ...], played: dict[int, tuple[Turn, ...]]) -> None:
    """When a send is released, the receiver has taken it before it sent something that has come back."""
    heard: dict[int, int] = {}
    for turn in own:
        for message in turn.receives:
            place = next(i for i, other in enumerate(played[message.source]) if message in other.sends)
            heard[message.source] = max(heard.get(message.source, -1), place)
        for message in turn.releases:
            taken = next(i for i, other in enumerate(played[message.target]) if message in other.receives)
            assert taken <= heard[message.target]
