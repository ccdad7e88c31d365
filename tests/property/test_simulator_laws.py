"""Laws that simulated times obey."""

import itertools
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.simulator.timeline import simulate
from tests.pipelines import random_costs, random_interleaved, random_routes


@st.composite
def plans(draw: st.DrawFn, *, names: int) -> PlanCosts:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    style = draw(st.sampled_from(["real", "whole", "rare"]))
    schedule = draw(st.sampled_from(list(Schedule)))
    if schedule is Schedule.INTERLEAVED:
        return random_interleaved(rng, names=names, style=style)
    stages = draw(st.integers(1, 6))
    return random_costs(
        rng,
        random_routes(rng, 3 * stages - 2, names=names),
        schedule=schedule,
        micro_batches=draw(st.integers(1, 12)),
        style=style,
    )


@settings(max_examples=90)
@given(costs=plans(names=2))
def test_the_critical_path_is_unbroken_from_start_to_end(costs):
    timeline = simulate(costs)
    path = list(timeline.critical_path)
    assert timeline.start_s[path[0]] == 0
    assert timeline.end_s[path[:-1]].tolist() == timeline.start_s[path[1:]].tolist()
    assert timeline.end_s[path[-1]] == timeline.iteration_s == iteration_times([costs])[0]


@given(costs=plans(names=3))
def test_tasks_on_a_link_never_overlap(costs):
    timeline = simulate(costs)
    for name in {name for names in timeline.links for name in names}:
        tasks = [task for task, names in enumerate(timeline.links) if name in names]
        spans = sorted((timeline.start_s[task], timeline.end_s[task]) for task in tasks)
        assert all(after[0] >= before[1] for before, after in itertools.pairwise(spans))


@given(costs=plans(names=0), which=st.sampled_from(["forward_s", "backward_s", "transfer_s", "sync_s", "update_s"]))
def test_more_work_never_helps_where_no_link_is_shared(costs, which):
    """On shared links more work can help: first come, first served has Graham's anomalies."""
    slower = replace(costs, **{which: getattr(costs, which) * 1.5})
    before, after = iteration_times([costs, slower])
    assert after >= before


@given(costs=plans(names=3))
def test_doubled_times_double_the_iteration(costs):
    times = ("forward_s", "backward_s", "transfer_s", "sync_s", "update_s")
    doubled = replace(costs, **{name: 2 * getattr(costs, name) for name in times})
    before, after = iteration_times([costs, doubled])
    assert after == 2 * before


@given(costs=plans(names=3))
def test_renaming_links_changes_nothing(costs):
    fields = ("forward_links", "backward_links", "sync_links")
    renamed = replace(
        costs,
        **{
            field: tuple(tuple(f"Z{name[::-1]}" for name in route) for route in getattr(costs, field))
            for field in fields
        },
    )
    assert iteration_times([renamed])[0] == iteration_times([costs])[0]


@given(costs=plans(names=2))
def test_no_stage_holds_more_than_its_warmup_depth(costs):
    """Saved 1 byte per micro-batch of one stage: its devices' high-water mark is the largest number in flight."""
    for stage, depth in enumerate(costs.warmup_depth):
        saved = replace(costs, saved_bytes=np.eye(costs.num_stages)[stage])
        assert simulate(saved).memory_high_water_bytes[stage] == depth


@given(costs=plans(names=2), seed=st.integers(0, 2**32 - 1))
def test_memory_high_water_is_the_planned_one(costs, seed):
    """Whole bytes, so that sums are exact."""
    rng = np.random.default_rng(seed)
    fields = ("static_bytes", "saved_bytes", "working_bytes")
    heavy = replace(costs, **{field: rng.integers(0, 100, costs.num_stages).astype(float) for field in fields})
    assert simulate(heavy).memory_high_water_bytes.tolist() == heavy.memory_bytes.tolist()
