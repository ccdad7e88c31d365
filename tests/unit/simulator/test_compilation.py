"""Compilation of action lists into tasks."""

import pytest

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.simulator.action_lists import Action, Op, interleaved_actions, stage_actions
from stagecut.planner.simulator.compilation import compile_actions, pipeline_graph


def actions(stage, text):
    """Written `F0-2 B0-2`."""
    words = [(word[0], *word[1:].split("-")) for word in text.split()]
    return [Action(Op(op), stage, int(lo), int(hi)) for op, lo, hi in words]


def columns(graph, first, stop):
    return graph.predecessors[first:stop, 0].tolist()


def ranges(graph, kind):
    chosen = graph.kind == kind
    return list(zip(graph.lo[chosen].tolist(), graph.hi[chosen].tolist(), strict=True))


def test_equal_micro_batches_travel_as_one_message_each():
    graph = pipeline_graph((2, 1), 3)
    assert ranges(graph, TaskKind.SEND_FORWARD) == [(0, 1), (1, 2), (2, 3)]
    assert ranges(graph, TaskKind.SEND_BACKWARD) == [(0, 1), (1, 2), (2, 3)]


def test_tasks_are_actions_messages_all_reduces_and_steps():
    """Two stages x two micro-batches: 8 actions, 2 + 2 messages, 2 all-reduces, 2 optimizer steps."""
    graph = pipeline_graph((2, 1), 2)
    assert [(graph.kind == kind).sum() for kind in TaskKind] == [4, 4, 2, 2, 2, 2]


def test_messages_are_cut_where_sender_or_receiver_is():
    """[0, 2) [2, 3) meets [0, 1) [1, 3): cuts at 0, 1, 2, 3."""
    lists = [stage_actions(0, [2, 1], [3], depth=3), stage_actions(1, [1, 2], [3], depth=3)]
    assert ranges(compile_actions(lists), TaskKind.SEND_FORWARD) == [(0, 1), (1, 2), (2, 3)]


def test_an_action_waits_for_the_last_of_its_messages():
    """The one forward of stage 1 takes both messages of stage 0."""
    graph = compile_actions([actions(0, "F0-1 F1-2 B0-2"), actions(1, "F0-2 B0-2")])
    needed = graph.predecessors[3, 1]
    assert (graph.kind[needed], graph.lo[needed], graph.hi[needed]) == (TaskKind.SEND_FORWARD, 1, 2)


def test_messages_follow_the_order_of_sending():
    """Stage 0 runs its second half first; the whole forward of stage 1 waits for the half sent last."""
    graph = compile_actions([actions(0, "F1-2 F0-1 B0-2"), actions(1, "F0-2 B0-2")])
    needed = graph.predecessors[3, 1]
    assert (graph.lo[needed], graph.hi[needed]) == (0, 1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("F0-1 B0-2", r"forwards of stage 0 must cover the samples \[0, 2\) exactly once, got \[0, 1\)"),
        ("F0-2 F1-2 B0-2", r"got \[0, 2\), \[1, 2\)"),
        ("F0-2", "backwards of stage 0 .* got none"),
        ("F0-2 F2-2 B0-2", "exactly once"),
        ("F0-1 B0-2 F1-2", r"backward of samples \[0, 2\) before a forward"),
        ("", "every stage must have actions"),
    ],
)
def test_a_list_that_is_no_iteration_is_rejected(text, complaint):
    with pytest.raises(BadInputError, match=complaint):
        compile_actions([actions(0, text)])


def test_stages_that_wait_for_each_other_are_named():
    """Stage 0 runs one forward before it wants a gradient, stage 1 wants two forwards first."""
    lists = [actions(0, "F0-1 B0-1 F1-2 B1-2"), actions(1, "F0-1 F1-2 B0-1 B1-2")]
    with pytest.raises(BadInputError, match=r"forever: stage 0 at the backward of samples \[0, 1\), stage 1 at the f"):
        compile_actions(lists)


def test_a_stage_in_two_lists_is_rejected():
    with pytest.raises(BadInputError, match="actions of stage 0 must be in one list"):
        compile_actions([actions(0, "F0-1"), actions(0, "B0-1")])


def test_stages_of_one_device_group_reduce_one_after_another_and_then_step():
    """Stages 0 and 2 share one, whose last action is number 4; that of the other is number 6."""
    shared = actions(0, "F0-1 F1-2") + actions(2, "F0-2 B0-2") + actions(0, "B0-2")
    graph = compile_actions([shared, actions(1, "F0-2 B0-2")])
    assert graph.device.tolist() == [0, 1, 0]
    last_actions, first_sync, first_update = [4, 6], graph.first_sync, graph.first_update
    assert columns(graph, first_sync, first_update) == [*last_actions, first_sync]
    assert columns(graph, first_update, graph.num_tasks) == [first_sync + 2, first_sync + 1, first_update]


@pytest.mark.parametrize("num_devices", range(1, 6))
@pytest.mark.parametrize("chunks", range(1, 5))
@pytest.mark.parametrize("rounds", range(1, 4))
def test_interleaved_device_groups_never_wait_for_each_other_forever(num_devices, chunks, rounds):
    graph = compile_actions(interleaved_actions(num_devices, chunks, rounds * num_devices))
    assert graph.num_actions == 2 * rounds * num_devices * num_devices * chunks
