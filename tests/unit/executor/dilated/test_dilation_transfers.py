"""What takes its turn on which links."""

from stagecut.executor.dilated.planned_times import PlannedTimes
from stagecut.executor.dilated.transfers import transfers_of
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.schedule.rank_layout import RankLayout
from stagecut.executor.schedule.turns import turns_of
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.simulator.action_lists import Op, plan_actions, stage_actions


def times_of(plan, *, routes=None):
    """Transfers of 4, 5, ... s for a micro-batch, all-reduces of 1, 2, ... s."""
    num_stages = len(plan.stages)
    return PlannedTimes(
        micro_batch=plan.micro_batch,
        forward_s=(1.0,) * num_stages,
        backward_s=(2.0,) * num_stages,
        transfer_s=tuple(4.0 + boundary for boundary in range(num_stages - 1)),
        sync_s=tuple(1.0 + stage for stage in range(num_stages)),
        update_s=(0.0,) * num_stages,
        routes=routes or ((),) * (3 * num_stages - 2),
    )


def transfers_and_messages(plan, *, lists=None, routes=None, pipeline=0):
    """Transfers, and the messages that have them."""
    layout, lists = RankLayout.of(plan), lists or plan_actions(plan)
    transfers = transfers_of(times_of(plan, routes=routes), lists, layout, pipeline=pipeline)
    turns = turns_of(lists, layout, pipeline=pipeline)
    messages = [message for own in turns.values() for turn in own for message in turn.sends if not message.is_local]
    return transfers, messages


def test_equal_micro_batches_have_a_transfer_for_each_message():
    """Two boundaries, two directions, four micro-batches; over boundary 1 a message takes 5 s."""
    transfers, messages = transfers_and_messages(plan_of((0, 1, 2, 3)))
    assert len({transfers.messages[message.number].number for message in messages}) == 16
    last = next(message for message in messages if message.stage == 2)
    transfer = transfers.messages[last.number]
    assert (transfer.num_parts, transfer.ranks, transfer.seconds) == (1, (2,), 5.0)


def test_every_flow_is_a_link_of_its_own():
    """Activations and gradients of a boundary do not wait for each other."""
    transfers, messages = transfers_and_messages(plan_of((0, 1, 2, 3)))
    links = {(message.op, message.stage): transfers.messages[message.number].links for message in messages}
    assert links == {
        (Op.FORWARD, 0): (0,),
        (Op.FORWARD, 1): (1,),
        (Op.BACKWARD, 1): (2,),
        (Op.BACKWARD, 2): (3,),
    }
    assert transfers.num_links == 4


def test_shared_links_follow_the_flows():
    """Activations over boundary 0 and gradients over boundary 1 share one, with the all-reduce of stage 1."""
    routes = (("a",), (), (), ("a",), (), ("a",), ())
    transfers, messages = transfers_and_messages(plan_of((0, 1, 2, 3)), routes=routes)
    links = {(message.op, message.stage): transfers.messages[message.number].links for message in messages}
    assert links[Op.FORWARD, 0] == (0, 4)
    assert links[Op.FORWARD, 1] == (1,)
    assert links[Op.BACKWARD, 2] == (3, 4)
    assert transfers.syncs[1].links == (4,)
    assert transfers.syncs[0].links == ()
    assert transfers.num_links == 5


def test_parts_of_replicas_travel_as_one():
    """Two replicas send one sample each of a micro-batch of two, which takes 4 s as a whole."""
    transfers, messages = transfers_and_messages(plan_of((0, 1, 2), replicas=(2, 1)))
    forward = [message for message in messages if message.op is Op.FORWARD and message.hi <= 2]
    first, second = (transfers.messages[message.number] for message in forward)
    assert len(forward) == 2
    assert first == second
    assert (first.num_parts, first.ranks, first.seconds) == (2, (0, 1), 4.0)


def test_copies_for_devices_that_share_a_replica_take_no_longer():
    """Two devices get the two samples each."""
    transfers, messages = transfers_and_messages(plan_of((0, 1, 2), tensor_parallel=(1, 2)))
    forward = next(message for message in messages if message.op is Op.FORWARD)
    assert transfers.messages[forward.number].num_parts == 2
    assert transfers.messages[forward.number].seconds == 4.0


def test_gradients_of_one_backward_travel_as_one():
    """A micro-batch of two that was forwarded in halves: activations of 2 s each, gradients of 4 s."""
    plan = plan_of((0, 1, 2), num_microbatches=2)
    halved = [stage_actions(stage, [1, 1, 2], [2, 2], depth=2 * (2 - stage)) for stage in range(2)]
    transfers, messages = transfers_and_messages(plan, lists=halved)
    early = [transfers.messages[message.number] for message in messages if message.hi <= 2]
    assert [transfer.seconds for transfer in early] == [2.0, 2.0, 4.0]
    assert early[0] != early[1]


def test_a_gathered_message_takes_its_time_once():
    """Eight samples take 4 s: messages of six, to which both replicas contribute, 3 s, and the two left 1 s.

    The replicas forward [0, 2) and [2, 4), then [4, 6) and [6, 8); only the second one has part in the last message.
    """
    plan = plan_of(
        (0, 1, 2),
        schedule=Schedule.GPIPE,
        micro_batch=8,
        num_microbatches=1,
        replicas=(2, 1),
        sizes=((4, 8), (1, 8)),
        messages=((6, 8),),
    )
    transfers, messages = transfers_and_messages(plan)
    forward = [message for message in messages if message.op is Op.FORWARD]
    found = {transfers.messages[message.number] for message in forward}
    facts = [
        (transfer.num_parts, transfer.ranks, transfer.seconds) for transfer in sorted(found, key=lambda t: t.number)
    ]
    assert facts == [(2, (0, 1), 3.0), (1, (1,), 1.0)]


def test_pipelines_have_links_of_their_own_and_sum_gradients_together():
    """Two of two stages: two flows each, and a shared link each that the all-reduce of stage 0 needs both of."""
    plan = plan_of((0, 1, 2), num_pipelines=2)
    routes = (("a",), (), ("a",), ())
    first, second = (transfers_and_messages(plan, routes=routes, pipeline=pipeline) for pipeline in range(2))
    links = [{transfer.links for transfer in transfers.messages.values()} for transfers, _ in (first, second)]
    assert links == [{(0, 2), (1,)}, {(3, 5), (4,)}]
    numbers = [{transfer.number for transfer in transfers.messages.values()} for transfers, _ in (first, second)]
    assert numbers == [set(range(8)), set(range(8, 16))]
    assert first[0].syncs == second[0].syncs
    assert first[0].syncs[0].links == (2, 5)
    assert first[0].syncs[0].ranks == (0, 2)
    assert (first[0].num_links, first[0].num_transfers) == (6, 18)


def test_messages_that_stay_on_their_rank_are_not_transfers_and_messages():
    """Two chunks on one device group."""
    transfers, messages = transfers_and_messages(plan_of((0, 1, 2), schedule=Schedule.INTERLEAVED, chunks=2))
    assert messages == []
    assert transfers.messages == {}
    assert transfers.num_transfers == 2
