"""The array engine and the reference simulator give equal times, to the last bit."""

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.action_lists import Action, Op, stage_actions
from stagecut.planner.simulator.compilation import compile_actions
from stagecut.planner.simulator.engine import iteration_times, run
from stagecut.planner.simulator.timeline import simulate
from tests import reference_simulator as reference
from tests.pipelines import (
    random_costs,
    random_halves,
    random_interleaved,
    random_routes,
    random_seconds,
    reference_spans,
    task_keys,
)

seeds = st.integers(0, 2**32 - 1)
styles = st.sampled_from(["real", "whole", "rare"])
PLAIN = [schedule for schedule in Schedule if schedule is not Schedule.INTERLEAVED]
schedules = st.sampled_from(PLAIN)
num_names = st.sampled_from([0, 1, 2, 3, 6])
Lists = list[list[Action]]


@settings(max_examples=90)
@given(seed=seeds, stages=st.integers(1, 8), micro_batches=st.integers(1, 20), schedule=schedules, names=num_names)
def test_iteration_times_of_a_population_equal_the_reference(seed, stages, micro_batches, schedule, names):
    """Sixteen plans of one structure, with and without ties: 2,400 plans."""
    rng = np.random.default_rng(seed)
    routes = random_routes(rng, 3 * stages - 2, names=names)
    plans = [
        random_costs(rng, routes, schedule=schedule, micro_batches=micro_batches, style=style)
        for style in ["real"] * 8 + ["whole"] * 8
    ]
    expected = [reference.iteration_time(reference_spans(plan)) for plan in plans]
    assert iteration_times(plans).tolist() == expected
    assert [float(iteration_times([plan])[0]) for plan in plans[::8]] == expected[::8]


@settings(max_examples=25)
@given(seed=seeds)
def test_a_mixed_population_is_evaluated_plan_by_plan(seed):
    """Plans of many structures in one call keep their places."""
    rng = np.random.default_rng(seed)
    plans = [
        random_costs(
            rng,
            random_routes(rng, 3 * int(rng.integers(1, 5)) - 2, names=int(rng.integers(0, 4))),
            schedule=rng.choice(PLAIN),
            micro_batches=int(rng.integers(1, 8)),
            style="real",
        )
        for _ in range(12)
    ]
    assert iteration_times(plans).tolist() == [reference.iteration_time(reference_spans(plan)) for plan in plans]


@settings(max_examples=90)
@given(seed=seeds, names=num_names)
def test_interleaved_populations_equal_the_reference(seed, names):
    """Eight plans of one structure, and each of two on its own."""
    first = random_interleaved(np.random.default_rng(seed), names=names, style="real")
    rng = np.random.default_rng(seed)
    plans = [
        random_costs(
            rng,
            (*first.forward_links, *first.backward_links, *first.sync_links),
            schedule=Schedule.INTERLEAVED,
            micro_batches=first.variant.num_microbatches,
            style=style,
            chunks=first.variant.chunks,
        )
        for style in ["real"] * 4 + ["whole"] * 4
    ]
    expected = [reference.iteration_time(reference_spans(plan)) for plan in plans]
    assert iteration_times(plans).tolist() == expected
    assert [float(iteration_times([plan])[0]) for plan in plans[::4]] == expected[::4]


@settings(max_examples=90)
@given(seed=seeds, names=num_names, style=styles)
def test_every_span_of_an_interleaved_timeline_equals_the_reference(seed, names, style):
    costs = random_interleaved(np.random.default_rng(seed), names=names, style=style)
    _assert_timeline_equals(costs)


@settings(max_examples=60)
@given(
    seed=seeds,
    stages=st.integers(1, 8),
    micro_batches=st.integers(1, 12),
    schedule=schedules,
    names=num_names,
    style=styles,
)
def test_every_span_of_a_timeline_equals_the_reference(seed, stages, micro_batches, schedule, names, style):
    rng = np.random.default_rng(seed)
    routes = random_routes(rng, 3 * stages - 2, names=names)
    costs = random_costs(rng, routes, schedule=schedule, micro_batches=micro_batches, style=style)
    _assert_timeline_equals(costs)


@settings(max_examples=50)
@given(seed=seeds, stages=st.integers(1, 8), micro_batches=st.integers(1, 12), schedule=schedules, names=num_names)
def test_sliced_plans_equal_the_reference(seed, stages, micro_batches, schedule, names):
    """Any sliced warm-up count, stages that cannot halve among them: times of a population, and a timeline."""
    rng = np.random.default_rng(seed)
    routes = random_routes(rng, 3 * stages - 2, names=names)
    plans = [
        random_halves(
            rng, random_costs(rng, routes, schedule=schedule, micro_batches=micro_batches, style=style), style=style
        )
        for style in ["real", "whole", "whole"]
    ]
    assert iteration_times(plans).tolist() == [reference.iteration_time(reference_spans(plan)) for plan in plans]
    _assert_timeline_equals(plans[0])


@settings(max_examples=180)
@given(seed=seeds, stages=st.integers(1, 6), samples=st.integers(1, 12), names=num_names, style=styles)
def test_action_lists_in_any_legal_order_equal_the_reference(seed, stages, samples, names, style):
    """Stages cut and order their forwards and backwards each in a way of their own."""
    rng = np.random.default_rng(seed)
    _assert_equal(rng, _random_lists(rng, stages, samples), names=names, style=style)


@settings(max_examples=180)
@given(seed=seeds, stages=st.integers(1, 8), micro_batches=st.integers(1, 12), names=num_names, style=styles)
def test_halved_warmup_forwards_equal_the_reference(seed, stages, micro_batches, names, style):
    """Micro-batches of two samples; the first few forwards run as two halves."""
    rng = np.random.default_rng(seed)
    halved = int(rng.integers(0, micro_batches + 1))
    forwards = [1] * (2 * halved) + [2] * (micro_batches - halved)
    backwards = [2] * micro_batches
    lists = [stage_actions(s, forwards, backwards, depth=2 * (stages - s)) for s in range(stages)]
    _assert_equal(rng, lists, names=names, style=style)


@settings(max_examples=90)
@given(seed=seeds, stages=st.integers(1, 6), samples=st.integers(1, 6), names=num_names, style=styles)
def test_stages_on_any_device_groups_in_any_legal_order_equal_the_reference(seed, stages, samples, names, style):
    """Stages are dealt out to device groups at random, neighbours may share one."""
    rng = np.random.default_rng(seed)
    devices = rng.integers(0, rng.integers(1, stages + 1), stages)
    _, devices = np.unique(devices, return_inverse=True)
    _assert_equal(rng, _random_lists(rng, stages, samples, devices=devices.tolist()), names=names, style=style)


def _assert_timeline_equals(costs: PlanCosts) -> None:
    timeline = simulate(costs)
    spans = zip(timeline.start_s.tolist(), timeline.end_s.tolist(), strict=True)
    assert dict(zip(task_keys(timeline), spans, strict=True)) == _plain(reference_spans(costs))


def _assert_equal(rng: np.random.Generator, lists: Lists, *, names: int, style: str) -> None:
    """Three plans with one set of lists and links, each task with a duration of its own."""
    graph = compile_actions(lists)
    routes = random_routes(rng, graph.num_flows, names=names)
    durations_s = random_seconds(rng, (graph.num_tasks, 3), style)
    starts_s, ends_s = run(graph, durations_s, routes=routes)
    keys = task_keys(graph)
    flows = [(keys[task][:2], routes[flow]) for task, flow in enumerate(graph.flow.tolist()) if flow >= 0]
    plain_lists = [[(str(op), *rest) for op, *rest in own] for own in lists]
    for plan in range(3):
        seconds = dict(zip(keys, durations_s[:, plan].tolist(), strict=True))
        expected = reference.simulate(plain_lists, seconds.__getitem__, dict(flows).__getitem__)
        spans = zip(starts_s[:, plan].tolist(), ends_s[:, plan].tolist(), strict=True)
        assert dict(zip(keys, spans, strict=True)) == _plain(expected)


def _plain(spans: dict[tuple, reference.Span]) -> dict[tuple, tuple[float, float]]:
    return {key: (span.start, span.end) for key, span in spans.items()}


def _random_lists(
    rng: np.random.Generator, stages: int, samples: int, *, devices: Sequence[int] | None = None
) -> Lists:
    """Cut the samples of each stage and direction at random, then run whatever has its inputs, in random order.

    Stages have the device groups given, by default one each.
    """
    devices = devices or range(stages)
    left = [
        Action(op, stage, int(lo), int(hi))
        for stage in range(stages)
        for op in (Op.FORWARD, Op.BACKWARD)
        for lo, hi in _random_tiles(rng, samples)
    ]
    done = np.zeros((2, stages + 1, samples), dtype=bool)
    lists: Lists = [[] for _ in set(devices)]
    while left:
        ready = [action for action in left if _has_inputs(done, action, stages)]
        action = ready[int(rng.integers(len(ready)))]
        left.remove(action)
        done[int(action.op is Op.BACKWARD), action.stage, action.lo : action.hi] = True
        lists[devices[action.stage]].append(action)
    return lists


def _random_tiles(rng: np.random.Generator, samples: int) -> list[tuple[int, int]]:
    inner = np.flatnonzero(rng.random(samples - 1) < rng.random()) + 1
    cuts = [0, *inner.tolist(), samples]
    return list(itertools.pairwise(cuts))


def _has_inputs(done: np.ndarray, action: Action, stages: int) -> bool:
    op, stage, lo, hi = action
    if op is Op.FORWARD:
        return stage == 0 or bool(done[0, stage - 1, lo:hi].all())
    return bool(done[0, stage, lo:hi].all()) and (stage == stages - 1 or bool(done[1, stage + 1, lo:hi].all()))
