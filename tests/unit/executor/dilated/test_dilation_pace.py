"""What one rank of a dilated run waits for, by a clock that moves only when somebody waits."""

import pytest

from stagecut.executor.dilated.dilation import Dilation
from stagecut.executor.dilated.planned_times import PlannedTimes
from stagecut.executor.dilated.shared_links import SharedLinks
from stagecut.executor.dilated.transfers import transfers_of
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.ranks.failures import WaitError
from stagecut.executor.schedule.rank_layout import RankLayout
from stagecut.executor.schedule.turns import turns_of
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.simulator.action_lists import Op, plan_actions


class FakeTimer:
    """Starts at 100 s."""

    def __init__(self):
        self.time_s = 100.0

    def now(self):
        return self.time_s

    def sleep(self, seconds):
        self.time_s += seconds

    def wait_until(self, deadline_s):
        self.time_s = max(self.time_s, deadline_s)


class Rank:
    """One rank with a clock of its own."""

    def __init__(self, plan, rank, path):
        num_stages = len(plan.stages)
        times = PlannedTimes(
            micro_batch=plan.micro_batch,
            forward_s=(2.0,) * num_stages,
            backward_s=(4.0,) * num_stages,
            transfer_s=(3.0,) * (num_stages - 1),
            sync_s=(5.0,) * num_stages,
            update_s=tuple(1.0 + stage for stage in range(num_stages)),
            routes=((),) * (3 * num_stages - 2),
        )
        layout = RankLayout.of(plan)
        role = layout.roles[rank]
        lists = plan_actions(plan)
        self.transfers = transfers_of(times, lists, layout, pipeline=role.pipeline)
        num_links, num_transfers = self.transfers.num_links, self.transfers.num_transfers
        self.links = SharedLinks(path, num_links=num_links, num_transfers=num_transfers)
        self.timer = FakeTimer()
        self.pace = Dilation(
            role, times=times, transfers=self.transfers, links=self.links, timer=self.timer, timeout_s=0.25
        )
        self.turns = turns_of(lists, layout, pipeline=role.pipeline)[rank]

    def work(self, kind, stage, num_samples, *, seconds=0.0):
        """Do something that really takes so long; when it ends."""
        self.pace.begin()
        self.timer.time_s += seconds
        self.pace.finish(kind, stage, num_samples)
        return self.timer.time_s

    def messages(self, op):
        """Those it sends or receives, in order."""
        sends = [message for turn in self.turns for message in turn.sends if message.op is op]
        return sends or [message for turn in self.turns for message in turn.receives if message.op is op]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "links"


def test_an_action_ends_its_planned_time_after_it_began(path):
    """F of two samples: 2 s, of which 0.5 s are work; of one sample: 1 s; then B of two: 4 s."""
    rank = Rank(plan_of((0, 1)), 0, path)
    assert rank.work(Op.FORWARD, 0, 2, seconds=0.5) == 102.0
    assert rank.work(Op.FORWARD, 0, 1) == 103.0
    assert rank.work(Op.BACKWARD, 0, 2) == 107.0


def test_work_that_takes_longer_than_planned_is_counted(path):
    """3.5 s of work for 2 s of F; the next step starts from nothing."""
    rank = Rank(plan_of((0, 1)), 0, path)
    assert rank.work(Op.FORWARD, 0, 2, seconds=3.5) == 103.5
    assert rank.pace.overrun_s == 1.5
    rank.pace.start()
    assert rank.pace.overrun_s == 0.0


def test_everything_takes_as_much_longer_as_the_time_scale_says(path):
    """Three times F of 2 s, and a message of 3 s on its way from 106."""
    sender, receiver = (Rank(plan_of((0, 1, 2)), rank, path) for rank in range(2))
    sender.pace.time_scale = 3.0
    assert sender.work(Op.FORWARD, 0, 2) == 106.0
    sender.pace.sent(sender.messages(Op.FORWARD)[0])
    receiver.pace.received(receiver.messages(Op.FORWARD)[0])
    assert receiver.timer.time_s == 115.0


def test_a_rank_is_late_by_what_it_begins_and_ends_later_than_it_could(path):
    """0.25 s pass before F of 2 s begins, its work takes 3 s, and half a second passes before the next: 1.75 s."""
    rank = Rank(plan_of((0, 1)), 0, path)
    rank.pace.start()
    rank.timer.time_s += 0.25
    rank.work(Op.FORWARD, 0, 2, seconds=3.0)
    rank.timer.time_s += 0.5
    rank.work(Op.FORWARD, 0, 2)
    assert rank.pace.late_s == 1.75
    rank.pace.start()
    assert rank.pace.late_s == 0.0


def test_waiting_for_a_message_is_not_late(path):
    """The message is there at 105; the rank goes on at 105.5."""
    sender, receiver = (Rank(plan_of((0, 1, 2)), rank, path) for rank in range(2))
    sender.work(Op.FORWARD, 0, 2)
    sender.pace.sent(sender.messages(Op.FORWARD)[0])
    receiver.pace.start()
    receiver.pace.received(receiver.messages(Op.FORWARD)[0])
    receiver.timer.time_s += 0.5
    receiver.work(Op.FORWARD, 1, 2)
    assert receiver.pace.late_s == 0.5


def test_a_message_may_be_used_when_it_would_have_arrived(path):
    """Sent at 102, though the sender then spends half a second before it gets to it; 3 s on its way."""
    sender, receiver = (Rank(plan_of((0, 1, 2)), rank, path) for rank in range(2))
    sender.work(Op.FORWARD, 0, 2)
    sender.timer.time_s += 0.5
    sender.pace.sent(sender.messages(Op.FORWARD)[0])
    receiver.pace.received(receiver.messages(Op.FORWARD)[0])
    assert receiver.timer.time_s == 105.0


def test_a_message_that_has_arrived_is_not_waited_for(path):
    """The receiver is busy until 109."""
    sender, receiver = (Rank(plan_of((0, 1, 2)), rank, path) for rank in range(2))
    sender.work(Op.FORWARD, 0, 2)
    sender.pace.sent(sender.messages(Op.FORWARD)[0])
    receiver.timer.time_s = 109.0
    receiver.pace.received(receiver.messages(Op.FORWARD)[0])
    assert receiver.timer.time_s == 109.0


def test_messages_of_a_flow_arrive_one_after_another(path):
    """Sent at 102 and 104, 3 s each: the second waits for the first until 105."""
    sender, receiver = (Rank(plan_of((0, 1, 2)), rank, path) for rank in range(2))
    for message in sender.messages(Op.FORWARD)[:2]:
        sender.work(Op.FORWARD, 0, 2)
        sender.pace.sent(message)
    arrivals_s = []
    for message in receiver.messages(Op.FORWARD)[:2]:
        receiver.pace.received(message)
        arrivals_s.append(receiver.timer.time_s)
    assert arrivals_s == [105.0, 108.0]


def test_parts_of_a_message_arrive_with_the_last_of_them(path):
    """Replicas of one sample each end at 102 and 104: both parts are there at 107."""
    first, second, receiver = (Rank(plan_of((0, 1, 2), replicas=(2, 1)), rank, path) for rank in range(3))
    for rank, seconds in ((first, 2.0), (second, 4.0)):
        rank.work(Op.FORWARD, 0, 2, seconds=seconds)
        rank.pace.sent(rank.messages(Op.FORWARD)[0])
    receiver.pace.received(receiver.messages(Op.FORWARD)[0])
    assert receiver.timer.time_s == 107.0


def test_an_all_reduce_begins_when_the_last_replica_is_there(path):
    """One comes at 100, the other at 101.5: 5 s from then, for both."""
    plan = plan_of((0, 1), replicas=(2,))
    early, late = (Rank(plan, rank, path) for rank in range(2))
    late.links.join(late.transfers.syncs[0], 101.5)
    assert early.work("sync", 0, 0) == 106.5


def test_the_optimizer_steps_of_all_stages_of_a_rank_come_together(path):
    """Stages 0 and 2 of four on two device groups: 1 s and 3 s."""
    plan = plan_of((0, 1, 2, 3, 4), schedule=Schedule.INTERLEAVED, chunks=2)
    assert Rank(plan, 0, path).work("update", 0, 0) == 104.0


def test_a_part_that_never_comes_is_not_waited_for_without_end(path):
    """The other replica is named."""
    rank = Rank(plan_of((0, 1), replicas=(2,)), 0, path)
    with pytest.raises(WaitError) as caught:
        rank.work("sync", 0, 0)
    assert caught.value.ranks == (1,)
    assert rank.timer.time_s == pytest.approx(100.25, abs=0.01)
