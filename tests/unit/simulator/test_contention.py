"""Links shared by several flows, by hand.

One micro-batch on three stages with F = B = 1 and free transfers: backwards end at 4 (stage 2),
5 (stage 1) and 6 (stage 0), and the all-reduces are ready then.
"""

import numpy as np
import pytest

from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.simulator.routes import shared_routes
from stagecut.planner.simulator.timeline import simulate
from tests.pipelines import pipeline_costs


def three_stages(**changes):
    return pipeline_costs([1, 1, 1], [1, 1, 1], micro_batches=1, sync_s=np.full(3, 10.0), **changes)


def sync_starts(costs):
    timeline = simulate(costs)
    return timeline.start_s[timeline.kind == TaskKind.SYNC].tolist()


def test_all_reduces_on_links_of_their_own_start_when_ready():
    assert sync_starts(three_stages()) == [6, 5, 4]


def test_all_reduces_on_one_link_follow_one_another():
    """Stage 2 from 4 to 14, stage 1 to 24, stage 0 to 34."""
    costs = three_stages(sync_links=(("nic",), ("nic",), ("nic",)))
    assert sync_starts(costs) == [24, 14, 4]
    assert iteration_times([costs])[0] == 34


def test_a_task_stands_in_line_on_all_its_links():
    """Stage 1 waits for link a until 14; stage 0 came to link b after it and waits until 24, though b is idle."""
    assert sync_starts(three_stages(sync_links=(("b",), ("a", "b"), ("a",)))) == [24, 14, 4]


def test_a_message_goes_before_a_collective_that_is_ready_at_the_same_time():
    """Gradient and all-reduce of stage 1 are both ready at 3: the gradient takes 3 to 5, the all-reduce starts at 5."""
    costs = pipeline_costs(
        [1, 0], [1, 0], 2, micro_batches=1, backward_links=(("nic",),), sync_links=((), ("nic",)), sync_s=np.ones(2)
    )
    timeline = simulate(costs)
    assert timeline.start_s[timeline.kind == TaskKind.SEND_BACKWARD].tolist() == [3]
    assert sync_starts(costs) == [6, 5]


def test_activations_and_gradients_queue_for_one_fabric():
    """GPipe would not meet; 1F1B, two micro-batches, F 2, B 2, c 3, one fabric for both ways.

    F_0 of stage 0 ends at 2, its activation holds the fabric from 2 to 5; that of F_1, ready at 4,
    from 5 to 8. Stage 1: F_0 5-7, B_0 7-9, F_1 9-11, B_1 11-13. Gradients 9-12 and 13-16.
    Stage 0: B_0 12-14, B_1 16-18.
    """
    fabric = (("fabric",),)
    costs = pipeline_costs([2, 2], [2, 2], 3, micro_batches=2, forward_links=fabric, backward_links=fabric)
    assert iteration_times([costs])[0] == 18


def test_of_requests_at_one_instant_those_known_come_first():
    """Link L: stage 1 sends its second activation at 8 for 1 s. At the same instant, by tasks of no

    duration, its first gradient lets stage 0 run its fourth forward, whose activation of no duration
    has the smaller number but is only requested after stage 1's was granted: it starts at 9.
    """
    costs = pipeline_costs(
        [0, 4, 1],
        [0, 0, 1],
        [0, 1],
        micro_batches=4,
        forward_links=(("L",), ("L",)),
        backward_links=(("K",), ("K",)),
    )
    timeline = simulate(costs)
    fourth = (timeline.kind == TaskKind.SEND_FORWARD) & (timeline.stage == 0) & (timeline.lo == 3)
    assert timeline.start_s[fourth].tolist() == [9]


def test_boundaries_between_the_same_device_groups_queue_for_one_link():
    """One round of two groups with two chunks, F = B = 1; activations of stages 0 and 2 share a link, 3 s each.

    Stage 0 runs 0-1 and 1-2; its messages take 1-4 and 4-7. Stage 1 runs 4-5 and 7-8, stage 2 5-6 and 8-9:
    the first message of stage 2 is ready at 6 and waits until 7.
    """
    costs = pipeline_costs(
        [1] * 4,
        [1] * 4,
        [3, 0, 3],
        micro_batches=2,
        schedule=Schedule.INTERLEAVED,
        chunks=2,
        forward_links=(("wire",), (), ("wire",)),
    )
    timeline = simulate(costs)
    sent = (timeline.kind == TaskKind.SEND_FORWARD) & (timeline.stage == 2)
    assert timeline.start_s[sent].tolist() == [7, 10]


@pytest.mark.parametrize("population", [1, 3])
def test_a_link_that_is_shared_but_never_contended_costs_nothing(population):
    """One micro-batch is never in two places."""
    links = (("nic",), ("nic",))
    plans = [pipeline_costs([1, 1, 1], [2, 2, 2], 1, micro_batches=1, forward_links=links, backward_links=links)]
    assert iteration_times(plans * population).tolist() == [13] * population


def test_links_of_one_flow_are_dropped():
    assert shared_routes((("a",), ("b",), ("c", "c"), ())) == ((), (), (), ())


def test_links_are_numbered_by_first_use():
    assert shared_routes((("x",), ("x", "y"), ("y",))) == ((0,), (0, 1), (1,))


def test_a_link_inside_another_is_dropped():
    """Whoever queues for `out` also queues for `all`."""
    assert shared_routes((("out", "all"), ("out", "all"), ("all",))) == ((0,), (0,), (0,))
