"""Sublots of any size: the array engine against the reference simulator, and against the recursion under a flush."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.core.sublot_sizes import sublot_lengths
from stagecut.planner.cost.plan_costs import SublotCut, TaskKind
from stagecut.planner.simulator.action_lists import sublot_actions
from stagecut.planner.simulator.compilation import MessageSizes, compile_actions
from stagecut.planner.simulator.engine import run
from tests import reference_simulator as reference
from tests.pipelines import WORDS, random_routes, random_seconds


def keys_of(graph):
    """Keys of the reference simulator, task by task."""
    words = dict(WORDS)
    rows = zip(graph.kind.tolist(), graph.stage.tolist(), graph.lo.tolist(), graph.hi.tolist(), strict=True)
    return [
        (words[kind], stage, lo, hi) if kind in words else ({4: "sync", 5: "update"}[kind], stage)
        for kind, stage, lo, hi in rows
    ]


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32 - 1),
    stages=st.integers(1, 4),
    samples=st.integers(1, 12),
    names=st.sampled_from([0, 0, 1, 3]),
    style=st.sampled_from(["real", "whole", "rare"]),
)
def test_sublots_of_any_size_equal_the_reference(seed, stages, samples, names, style):
    """Sizes that divide nothing, messages that cut or gather, any number of samples in flight."""
    rng = np.random.default_rng(seed)
    forward = [int(size) for size in rng.integers(1, samples + 1, stages)]
    backward = [int(rng.choice([*range(size, samples + 1, size), samples])) for size in forward]
    sizes = [[None, *range(1, samples + 1)][int(pick)] for pick in rng.integers(0, samples + 1, 2 * stages - 2)]
    there, back = tuple(sizes[: stages - 1]), tuple(sizes[stages - 1 :])
    cut = SublotCut(
        num_samples=samples,
        forward=tuple(forward),
        backward=tuple(backward),
        forward_messages=there,
        backward_messages=back,
        in_flight=(samples,) * stages,
    )
    lists = sublot_actions(cut)
    graph = compile_actions(lists, MessageSizes(forward=there, backward=back))
    routes = random_routes(rng, 3 * stages - 2, names=names)
    durations_s = random_seconds(rng, graph.num_tasks, style)
    keys = keys_of(graph)
    seconds = dict(zip(keys, durations_s.tolist(), strict=True))
    flows = [("send F", s) for s in range(stages - 1)] + [("send B", s + 1) for s in range(stages - 1)]
    links = dict(zip([*flows, *(("sync", s) for s in range(stages))], routes, strict=True))
    own = {("F", s): size for s, size in enumerate(there) if size is not None}
    own |= {("B", s + 1): size for s, size in enumerate(back) if size is not None}
    plain = [
        [({"F": "F", "B": "B"}[action.op], action.stage, action.lo, action.hi) for action in each] for each in lists
    ]
    spans = reference.simulate(plain, seconds.__getitem__, links.__getitem__, own)
    starts_s, ends_s = run(graph, durations_s[:, None], routes=routes)
    assert set(spans) == set(keys)
    assert ends_s[:, 0].tolist() == [spans[key].end for key in keys]
    assert starts_s[:, 0].tolist() == [spans[key].start for key in keys]


def test_a_message_gathers_or_cuts_what_a_stage_makes():
    """Forwards of 2 samples on the first stage, of 4 on the second, messages of 3: [0, 3) waits for the second forward.

    Forwards of 1 s end at 1, 2; messages of 1 s: [0, 3) from 2 to 3, [3, 4) from 3 to 4; the second stage then takes
    its 4 samples from 4 to 5, and its backward from 5 to 6. Gradients of 1 sample each leave at 6, 7, 8, 9; the first
    stage's backward of all 4 samples runs from 10 to 11.
    """
    cut = SublotCut(
        num_samples=4,
        forward=(2, 4),
        backward=(4, 4),
        forward_messages=(3,),
        backward_messages=(1,),
        in_flight=(4, 4),
    )
    graph = compile_actions(sublot_actions(cut), MessageSizes(forward=(3,), backward=(1,)))
    seconds = np.where(graph.kind < TaskKind.SYNC, 1.0, 0.0)
    _, ends_s = run(graph, seconds[:, None])
    assert ends_s.max() == pytest.approx(11.0)
    assert sorted((graph.hi - graph.lo)[graph.kind == TaskKind.SEND_FORWARD].tolist()) == [1, 3]


def test_the_last_sublot_is_what_is_left():
    """7 samples in sublots of 3."""
    assert sublot_lengths(7, 3) == (3, 3, 1)
