"""How long shared links are busy with messages, worked out by hand."""

import numpy as np
import pytest

from stagecut.planner.core.schedule import Schedule
from stagecut.planner.simulator.bounds import bound_rows
from stagecut.planner.simulator.engine import iteration_times
from tests.pipelines import pipeline_costs


def three_stages(outward, homeward, **changes):
    """F = B = 1, c = 2, M = 4: the first activation is ready at 1, over the second boundary at 4."""
    return pipeline_costs(
        [1] * 3, [1] * 3, 2, micro_batches=4, forward_links=outward, backward_links=homeward, **changes
    )


def test_a_fabric_carries_all_messages():
    """16 of 2 s from 1 on, then B_0: 34, where every other row is at most 28."""
    costs = three_stages((("fabric",),) * 2, (("fabric",),) * 2)
    rows = bound_rows(costs)
    assert rows.pop("load").tolist() == [1 + 32 + 1]
    assert max(values.max() for values in rows.values()) == 28
    assert iteration_times([costs])[0] == 35


def test_an_interface_carries_what_comes_to_its_host_and_what_its_host_sends_on():
    """The second host: in from 1 on, 8 messages, B_1 and the way home of 3; out from 4 on, 8 messages, B_0."""
    costs = three_stages((("0 out", "1 in"), ("1 out", "2 in")), (("1 out", "0 in"), ("2 out", "1 in")))
    assert sorted(bound_rows(costs)["load"])[-2:] == [1 + 16 + 1 + 3, 4 + 16 + 1]


def test_flows_over_later_boundaries_may_say_more_alone():
    """From 1 + 0.1 + 1 on 8 messages of 2 s, then B_1, c and B_0; with the first boundary 1 + 16.8 + 1."""
    costs = three_stages((("fabric",),) * 2, (("fabric",),) * 2)
    costs = pipeline_costs(
        [1] * 3,
        [1] * 3,
        np.array([0.1, 2.0]),
        micro_batches=4,
        forward_links=costs.forward_links,
        backward_links=costs.backward_links,
    )
    (row,) = bound_rows(costs)["load"]
    assert row == pytest.approx(1 + 0.1 + 1 + 16 + 1 + 0.1 + 1)


def test_all_reduces_follow_the_last_message():
    """That of the first stage, 5 s, after the fabric's 34."""
    costs = three_stages((("fabric",),) * 2, (("fabric",),) * 2, sync_s=np.array([5.0, 0.0, 0.0]))
    assert bound_rows(costs)["load"].tolist() == [34 + 5]


def test_one_stage_sends_nothing():
    """There are no links."""
    assert bound_rows(pipeline_costs([1], [1], micro_batches=2))["load"].tolist() == []


def test_activations_alone_may_keep_a_fabric_busy_longest():
    """From 1 on 8 of 2 s over two boundaries; after the last one F, B and c of later stages and B and c of all."""
    nothing = ((),) * 3
    costs = pipeline_costs(
        [1] * 4, [1] * 4, 2, micro_batches=4, forward_links=(("fabric",), ("fabric",), ()), backward_links=nothing
    )
    assert bound_rows(costs)["load"].tolist() == [1 + 16 + (1 + 2 + 1) + (1 + 2 + 1 + 2 + 1 + 2 + 1)]


def test_early_gradients_wait_for_late_activations():
    """Out of the second host: activations are ready at 8, 12, 16 .., and the first gradient at 17.

    From 16 on 4 activations of 3 s, and 4 gradients. The last activation is followed by F and B of the last stage, c,
    B_1, c and B_0, 13 s; the fourth gradient by three B_0, 12 s.
    """
    outward, homeward = (("0 out", "1 in"), ("1 out", "2 in")), (("1 out", "0 in"), ("2 out", "1 in"))
    costs = pipeline_costs(
        [4, 1, 1],
        [4, 1, 1],
        3,
        micro_batches=6,
        schedule=Schedule.EAGER_ONE_F_ONE_B,
        forward_links=outward,
        backward_links=homeward,
    )
    rows = bound_rows(costs)
    assert rows.pop("load").max() == 16 + 4 * 3 + 4 * 3 + 12
    assert max(values.max() for values in rows.values() if len(values)) == 48
    assert iteration_times([costs])[0] == 55
