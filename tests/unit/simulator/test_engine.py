"""Iteration times that can be derived by hand."""

import numpy as np
import pytest

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.simulator.action_lists import stage_actions
from stagecut.planner.simulator.compilation import compile_actions, pipeline_graph
from stagecut.planner.simulator.engine import iteration_times, run
from tests.pipelines import pipeline_costs


def iteration_time(costs):
    return iteration_times([costs])[0]


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (1, 5), (2, 7), (4, 4), (4, 8), (8, 3)])
def test_equal_stages_under_one_f_one_b_take_the_textbook_time(stages, micro_batches):
    """(M + S - 1) (F + B) with F = 1, B = 2 and free transfers."""
    costs = pipeline_costs([1.0] * stages, [2.0] * stages, micro_batches=micro_batches)
    assert iteration_time(costs) == 3 * (micro_batches + stages - 1)


@pytest.mark.parametrize(
    ("devices", "chunks", "micro_batches"), [(1, 2, 3), (2, 2, 4), (4, 2, 8), (4, 3, 4), (3, 4, 9)]
)
def test_interleaving_shrinks_the_bubble_by_the_number_of_chunks(devices, chunks, micro_batches):
    """M v (F + B) of work and a bubble of (D - 1) (F + B), with F = 1 and B = 2 of one chunk (SC 2021, section 2.2)."""
    stages = devices * chunks
    costs = pipeline_costs(
        [1] * stages, [2] * stages, micro_batches=micro_batches, schedule=Schedule.INTERLEAVED, chunks=chunks
    )
    assert iteration_time(costs) == 3 * (micro_batches * chunks + devices - 1)


def test_interleaved_activations_return_to_the_first_device_group():
    """One round of two groups and two chunks, F = 1, B = 2, c = 1.

    Forwards at (group: start): stage 0 0, 1; stage 1 2, 3; stage 2 4, 5; stage 3 6, its backward 7, then 9 and 10.
    Backwards: stage 3 ends 9 and 12; stage 2 10-12 and 13-15; stage 1 13-15 and 16-18; stage 0 16-18 and 19-21.
    """
    costs = pipeline_costs([1] * 4, [2] * 4, 1, micro_batches=2, schedule=Schedule.INTERLEAVED, chunks=2)
    assert iteration_time(costs) == 21


def test_chunks_of_one_device_group_reduce_and_step_in_turn():
    """F 1, F 1, B 2, B 2 end at 6; all-reduces 1 and 5 end at 7 and 12; steps 2 and 3 at 14 and 17."""
    costs = pipeline_costs(
        [1, 1],
        [2, 2],
        micro_batches=1,
        schedule=Schedule.INTERLEAVED,
        chunks=2,
        sync_s=np.array([1.0, 5.0]),
        update_s=np.array([2.0, 3.0]),
    )
    assert iteration_time(costs) == 17


@pytest.mark.parametrize("seed", range(5))
def test_gpipe_is_two_flow_shops(seed):
    """Sum F + sum c + (M - 1) max(F, c), and the same for the backwards: every link is a stage of its own."""
    rng = np.random.default_rng(seed)
    forward, backward, transfer = rng.uniform(0.1, 3, 5), rng.uniform(0.1, 3, 5), rng.uniform(0.1, 3, 4)
    costs = pipeline_costs(forward, backward, transfer, micro_batches=9, schedule=Schedule.GPIPE)
    ways = [np.concatenate((times, transfer)) for times in (forward, backward)]
    assert iteration_time(costs) == pytest.approx(sum(way.sum() + 8 * way.max() for way in ways), rel=1e-12)


def test_a_transfer_is_paid_both_ways():
    """One micro-batch: F 1, transfer 5, F 1, B 2, transfer 5, B 2."""
    assert iteration_time(pipeline_costs([1, 1], [2, 2], 5, micro_batches=1)) == 16


def test_messages_of_a_boundary_follow_one_another():
    """GPipe, three forwards that end at 1, 2, 3, each sent for 10: one message starts when the one before ends."""
    graph = pipeline_graph((3, 3), 3)
    sent = graph.kind == TaskKind.SEND_FORWARD
    durations_s = np.select([graph.kind == TaskKind.FORWARD, sent], [1.0, 10.0])
    starts_s, ends_s = run(graph, durations_s[:, None])
    assert starts_s[sent, 0].tolist() == [1, 11, 21]
    assert ends_s[sent, 0].tolist() == [11, 21, 31]


@pytest.mark.parametrize(("schedule", "expected"), [(Schedule.ONE_F_ONE_B, 38), (Schedule.EAGER_ONE_F_ONE_B, 28)])
def test_eager_warmup_hides_transfers(schedule, expected):
    """Two stages, F = B = c = 1, twelve micro-batches.

    1F1B, k = 2: stage 0 ends its first two backwards at 6 and 8, and the loop from forward to backward
    through both stages, F c F B c B = 6 s, carries two micro-batches: 8 + 5 x 6. Eager, k = 3: six
    seconds of work per loop, so stage 1 starts at 2, never waits, and c and B follow: 2 + 24 + 2.
    """
    assert iteration_time(pipeline_costs([1, 1], [1, 1], 1, micro_batches=12, schedule=schedule)) == expected


def test_all_reduce_and_step_follow_the_last_backward():
    """Stage 0 ends its backward at (2 + 1) 3 = 9, stage 1 at 7; their tails are 1 + 1 and 5 + 1."""
    costs = pipeline_costs([1, 1], [2, 2], micro_batches=2, sync_s=np.array([1.0, 5.0]), update_s=np.array([1.0, 1.0]))
    assert iteration_time(costs) == 13


@pytest.mark.parametrize(("halved", "expected"), [(0, 33.0), (1, 31.5)])
def test_halving_the_first_micro_batch_shortens_the_startup(halved, expected):
    """Four stages, eight micro-batches, F = 1, B = 2: (8 + 3) 3 = 33.

    With the first micro-batch in two halves (AutoPipe, CLUSTER 2022), the last stage starts 3 x 0.5 earlier.
    """
    forwards = [1] * (2 * halved) + [2] * (8 - halved)
    graph = compile_actions([stage_actions(s, forwards, [2] * 8, depth=2 * (4 - s)) for s in range(4)])
    samples = graph.hi - graph.lo
    seconds = np.select(
        [graph.kind == TaskKind.FORWARD, graph.kind == TaskKind.BACKWARD], [0.5 * samples, 1.0 * samples]
    )
    _, ends = run(graph, seconds[:, None])
    assert ends.max() == expected


def test_doubled_times_double_the_iteration():
    """Exactly, as two is a power of two."""
    costs = pipeline_costs([0.3, 0.7, 0.2], [0.9, 0.4, 0.8], [0.1, 0.6], micro_batches=7)
    doubled = pipeline_costs(2 * costs.forward_s, 2 * costs.backward_s, 2 * costs.transfer_s, micro_batches=7)
    assert iteration_time(doubled) == 2 * iteration_time(costs)


def test_a_population_keeps_its_order():
    """Equal stages with F = i take (M + S - 1) (i + 2)."""
    plans = [pipeline_costs([i] * 3, [2] * 3, micro_batches=4) for i in range(5)]
    assert iteration_times(plans).tolist() == [6 * (i + 2) for i in range(5)]


def test_no_plans_take_no_time():
    assert iteration_times([]).shape == (0,)


@pytest.mark.parametrize(
    ("durations_s", "routes", "complaint"),
    [
        (np.full((10, 1), -1.0), None, "at least 0 seconds"),
        (np.full((10, 1), np.nan), None, "at least 0 seconds"),
        (np.zeros(10), None, "shape must be"),
        (np.zeros((9, 1)), None, "shape must be"),
        (np.zeros((10, 1)), ((),), "one per flow"),
    ],
)
def test_unusable_arguments_are_rejected(durations_s, routes, complaint):
    """Two stages and one micro-batch: 4 actions, 2 messages, 2 all-reduces and 2 steps are 10 tasks."""
    with pytest.raises(BadInputError, match=complaint):
        run(pipeline_graph((1, 1), 1), durations_s, routes=routes)
