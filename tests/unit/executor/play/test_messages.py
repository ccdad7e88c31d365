"""What each rank receives and sends."""

import random
from collections import Counter

from executor.play.layout import Layout
from executor.play.messages import RECEIVES_AHEAD, Message, Turn, turns_of
from planner.core.manual_plan import plan_of
from planner.simulator.schedules import Op, plan_actions, stage_actions
from tests.executor.plans import random_plan


def turns(plan, **options) -> dict[int, tuple[Turn, ...]]:
    """Turns of the first pipeline."""
    return turns_of(plan_actions(plan), Layout.of(plan, **options), pipeline=0)


def sent(own: tuple[Turn, ...]) -> list[Message]:
    return [message for turn in own for message in turn.sends]


def test_equal_micro_batches_travel_as_one_message_each_way() -> None:
    """Two stages, three micro-batches: three activations there, three gradients back."""
    played = turns(plan_of((0, 1, 2), num_microbatches=3))
    assert [(m.op, m.lo, m.hi, m.target) for m in sent(played[0])] == [(Op.FORWARD, lo, lo + 2, 1) for lo in (0, 2, 4)]
    assert [(m.op, m.lo, m.hi, m.target) for m in sent(played[1])] == [(Op.BACKWARD, lo, lo + 2, 0) for lo in (0, 2, 4)]


def test_replicas_exchange_the_samples_they_have_in_common() -> None:
    """Six samples: two replicas hold [0, 3) and [3, 6), three of the next stage [0, 2), [2, 4) and [4, 6)."""
    played = turns(plan_of((0, 1, 2), micro_batch=6, num_microbatches=1, replicas=(2, 3)))
    assert [(m.lo, m.hi, m.target) for m in sent(played[0])] == [(0, 2, 2), (2, 3, 3)]
    assert [(m.lo, m.hi, m.target) for m in sent(played[1])] == [(3, 4, 3), (4, 6, 4)]


def test_a_joint_backward_undoes_two_half_forwards() -> None:
    """The second stage runs [0, 1) and [1, 2) forward and [0, 2) backward: two gradient messages after it."""
    plan = plan_of((0, 1, 2), num_microbatches=2)
    lists = [stage_actions(s, [1, 1, 2], [2, 2], depth=2 * (2 - s)) for s in range(2)]
    played = turns_of(lists, Layout.of(plan), pipeline=0)
    backward = next(turn for turn in played[1] if turn.action.op is Op.BACKWARD)
    assert [(m.lo, m.hi) for m in backward.sends] == [(0, 1), (1, 2)]
    assert len(backward.pieces) == 2


def test_gradients_come_from_one_device_of_a_shared_replica() -> None:
    """The second stage is shared by ranks 1 and 2: both get the activation, one sends the gradient."""
    played = turns(plan_of((0, 1, 2), num_microbatches=1, tensor_parallel=(1, 2)))
    assert [m.target for m in sent(played[0])] == [1, 2]
    assert [len(sent(played[rank])) for rank in (1, 2)] == [1, 0]


def test_receives_are_posted_a_fixed_number_of_turns_ahead() -> None:
    """The first two at the start, each later one when the receive two before it is due."""
    played = turns(plan_of((0, 1, 2), num_microbatches=6))[1]
    forwards = [index for index, turn in enumerate(played) if turn.action.op is Op.FORWARD]
    posted = {message.number: index for index, turn in enumerate(played) for message in turn.posts}
    for place, index in enumerate(forwards):
        (message,) = played[index].receives
        assert posted[message.number] == (0 if place < RECEIVES_AHEAD else forwards[place - RECEIVES_AHEAD])


def test_every_message_of_a_random_plan_is_sent_once_taken_once_and_posted_before() -> None:
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
            _check_posts(own)
            _check_releases(own, played)


def _check_posts(own: tuple[Turn, ...]) -> None:
    posted: set[int] = set()
    for turn in own:
        posted |= {message.number for message in turn.posts}
        assert {message.number for message in turn.receives if not message.is_local} <= posted


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
