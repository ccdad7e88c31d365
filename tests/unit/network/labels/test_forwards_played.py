"""Forwards that the search in depth plays end when the simulator ends them."""

import itertools

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.network.labels.counted_nodes import NONE
from stagecut.planner.network.labels.forwards_played import none_played, play_further
from stagecut.planner.network.labels.lengths import START
from stagecut.planner.network.rows import build_rows
from stagecut.planner.network.stage_network import build_network, with_positions
from stagecut.planner.simulator.timeline import simulate
from stagecut.planner.solvers.exact.decision import Decision
from tests.network_paths import paths_by_plan
from tests.shared_fabrics import on_shared_fabrics


def messages_between_hosts(sweep, path):
    """For each transfer to another host: the stage before it, and when the messages that are played arrive."""
    most_depth = int(sweep.criteria.turns.largest_depth.max())
    played, host = none_played(len(path), most_depth), 0
    for index in range(0, len(path), 2):
        before, host = host, play_further(sweep, path[: index + 1], host, 0.0, START.copy(), played)
        if host == NONE:
            return
        if host > before:
            depth = sweep.terms[path[index - 1]]["least_depth"]
            yield index // 2 - 1, played.arrival[host, :depth].copy()


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_messages_before_the_first_gradient_arrive_as_simulated(seed):
    """To the last bit, since what is ready at once is served in a fixed order."""
    problem = on_shared_fabrics(np.random.default_rng(seed))
    costs = CostModel(problem)
    network = with_positions(build_network(costs, problem.variants[0]))
    decision = Decision(build_rows(network))
    assume(len(network.arcs) and decision.path_below(1e9) is not None)
    for plan, path in itertools.islice(paths_by_plan(network).items(), 20):
        timeline = simulate(costs.plan(plan))
        for stage, arrived_s in messages_between_hosts(decision._ways._sweep, path):
            sent = np.flatnonzero((timeline.kind == TaskKind.SEND_FORWARD) & (timeline.stage == stage))
            back = np.flatnonzero((timeline.kind == TaskKind.SEND_BACKWARD) & (timeline.stage == stage + 1))
            simulated_s = timeline.end_s[sent[np.argsort(timeline.lo[sent])]][: len(arrived_s)]
            before = simulated_s <= timeline.start_s[back].min()
            assert arrived_s[before].tolist() == simulated_s[before].tolist()
