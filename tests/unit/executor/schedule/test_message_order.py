"""What the common order of messages costs: time, and memory for what comes before it is needed."""

import random
from collections import defaultdict

import pytest

from stagecut.executor.manual_plan import plan_of
from stagecut.executor.schedule.messages import Message
from stagecut.executor.schedule.rank_layout import RankLayout
from stagecut.executor.schedule.turns import Turn, turns_of
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.simulator.action_lists import Op, plan_actions

NUM_STAGES = 8


def plan_under(schedule: Schedule, num_microbatches: int = 16) -> Plan:
    """Eight stages, of two chunks each under `interleaved`."""
    chunks = 2 if schedule is Schedule.INTERLEAVED else 1
    return plan_of(range(NUM_STAGES + 1), schedule=schedule, chunks=chunks, num_microbatches=num_microbatches)


def turns(plan: Plan) -> dict[int, tuple[Turn, ...]]:
    return turns_of(plan_actions(plan), RankLayout.of(plan), pipeline=0)


class TimedPlay:
    """Turns with times of their own, under NCCL's rules or with links that stand in nobody's way.

    Under NCCL's rules a message sets out when both ranks have begun it, which they do in the order of their turns,
    when what was begun before it on its pair has come, and when the receiver's memory is free: behind the action
    before the one that it computes.
    """

    def __init__(self, plan: Plan, forward_s: list[float], backward_s: list[float], message_s: float) -> None:
        self._turns = turns(plan)
        self._seconds = {Op.FORWARD: forward_s, Op.BACKWARD: backward_s}
        self._message_s = message_s

    def total_s(self, *, nccl: bool) -> float:
        """End of the last action."""
        lines = {rank: self._line(own) for rank, own in self._turns.items()}
        ends = {rank: [0.0, 0.0] for rank in lines}
        left: dict[int, float] = {}
        come: dict[int, float] = {}
        last: dict[object, float] = defaultdict(float)
        while any(lines.values()):
            for rank, line in lines.items():
                while line:
                    thing = line[0]
                    if isinstance(thing, Turn):
                        needed = [message.number for message in thing.receives if not message.is_local]
                        if not all(number in come for number in needed):
                            break
                        start = max([ends[rank][-1], *(come[number] for number in needed)])
                        ends[rank].append(start + self._seconds[thing.action.op][thing.action.stage])
                        left |= dict.fromkeys((message.number for message in thing.sends), ends[rank][-1])
                        del line[0]
                        continue
                    other = thing.source + thing.target - rank
                    if lines[other][0] is not thing:
                        break
                    free = ends[thing.target][-2] if nccl else 0.0
                    flow = (thing.source, thing.target, *(() if nccl else (thing.op, thing.stage)))
                    last[flow] = max(left[thing.number], free, last[flow]) + self._message_s
                    come[thing.number] = last[flow]
                    del line[0], lines[other][0]
        return max(own[-1] for own in ends.values())

    @staticmethod
    def _line(own: tuple[Turn, ...]) -> list[Turn | Message]:
        return [thing for turn in own for thing in (*turn.posts, turn, *turn.begins)]


@pytest.mark.parametrize("schedule", Schedule)
def test_no_step_takes_longer_for_the_order_where_messages_take_half_a_forward(schedule: Schedule) -> None:
    """Stages take up to 50 % more or less than the clock of the order has it: 1 a forward, 2 a backward."""
    draw = random.Random(1)
    for _ in range(10):
        forward_s = [draw.uniform(0.5, 1.5) for _ in range(NUM_STAGES)]
        backward_s = [2 * draw.uniform(0.75, 1.25) * seconds for seconds in forward_s]
        for message_s in (0.05, 0.5):
            play = TimedPlay(plan_under(schedule), forward_s, backward_s, message_s)
            assert play.total_s(nccl=True) == pytest.approx(play.total_s(nccl=False), rel=1e-12)


def test_the_play_knows_the_cost_of_messages_that_wait_for_each_other() -> None:
    """Two stages, one micro-batch: F, message, F, B, message, B of 1, 0.5, 1, 2, 0.5 and 2 seconds."""
    play = TimedPlay(plan_of((0, 1, 2), num_microbatches=1), [1.0, 1.0], [2.0, 2.0], 0.5)
    assert play.total_s(nccl=True) == play.total_s(nccl=False) == 7.0


@pytest.mark.parametrize(
    ("schedule", "most"),
    [(Schedule.GPIPE, 1), (Schedule.ONE_F_ONE_B, 1), (Schedule.EAGER_ONE_F_ONE_B, 2), (Schedule.INTERLEAVED, 2)],
)
@pytest.mark.parametrize("num_microbatches", (8, 32))
def test_few_actions_have_memory_for_their_messages_ahead(schedule: Schedule, most: int, num_microbatches: int) -> None:
    """Per flow, so many messages have memory ahead; a sender further ahead keeps what the receiver cannot take."""
    ahead = 0
    for own in turns(plan_under(schedule, num_microbatches)).values():
        held: dict[tuple[Op, int], set[int]] = defaultdict(set)
        for turn in own:
            for message in (*turn.posts, *turn.begins):
                if message not in turn.sends:
                    held[message.op, message.stage].add(message.number)
            for message in turn.receives:
                held[message.op, message.stage].discard(message.number)
            ahead = max([ahead, *(len(numbers) for numbers in held.values())])
    assert ahead == most
