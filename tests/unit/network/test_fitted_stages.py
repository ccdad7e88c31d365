"""Stages of one placement: which are short enough, which fit, and how."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.core.job import Recompute
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.arrangement import recompute_choice
from stagecut.planner.network.fitted_stages import fit_stages, quick_intervals
from stagecut.planner.network.host_states import build_host_states
from tests.catalogue import chain, job, one_server
from tests.property.strategies import problems

SINGLE = Placement(server_class=0, island=0)
LAWS = settings(max_examples=60)


def pairs(found):
    return set(zip(*(column.tolist() for column in found), strict=True))


def every_interval(num_layers):
    return np.array([(i, j) for i in range(num_layers) for j in range(i + 1, num_layers + 1)]).T


def some_placements(problem, variant):
    """The cost model of the variant's share, with each of up to four placements."""
    part = CostModel(problem).of(variant.share)
    options = build_host_states(problem, part.cluster, micro_batch=variant.micro_batch).options
    return [(part, option.placement) for option in options[:4]]


def test_intervals_up_to_the_limit_are_found():
    """4 micro-batches of 2 s a layer: two layers take 16 s, just in time; three take 24."""
    problem = Problem(model=chain(4, {"gpu": 2.0}), cluster=one_server("gpu", 1), job=job(4))
    found = quick_intervals(CostModel(problem), problem.variants[0], SINGLE, longest_s=16.0)
    assert pairs(found) == {(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4)}


def test_without_a_limit_every_interval_is_found():
    problem = Problem(model=chain(3, {"gpu": 2.0}), cluster=one_server("gpu", 1), job=job(4))
    found = quick_intervals(CostModel(problem), problem.variants[0], SINGLE, longest_s=math.inf)
    assert pairs(found) == pairs(every_interval(3))


@LAWS
@given(problems(max_layers=6), st.sampled_from((0.0, 3.0, 12.0, 40.0)))
def test_no_stage_within_the_limit_is_lost(problem, longest_s):
    """This holds on any placement of any variant, by its own costs."""
    costs = CostModel(problem)
    for variant in problem.variants:
        part = costs.of(variant.share)
        start, stop = every_interval(problem.model.num_layers)
        for option in build_host_states(problem, part.cluster, micro_batch=variant.micro_batch).options:
            stages = part.stages.stages(
                option.placement, micro_batch=variant.micro_batch, recompute=False, start=start, stop=stop
            )
            short = variant.num_microbatches * (stages.forward_s + stages.backward_s) <= longest_s
            found = quick_intervals(part, variant, option.placement, longest_s=longest_s)
            assert pairs((start[short], stop[short])) <= pairs(found)


@LAWS
@given(problems(max_layers=5), st.integers(1, 4))
def test_stages_fit_as_they_do_one_by_one(problem, depth):
    """Recompute mode and costs are those of the stage assembled on its own."""
    variant, start, stop = problem.variants[-1], *every_interval(problem.model.num_layers)
    for part, placement in some_placements(problem, variant):
        fitting = fit_stages(part, variant, placement, start, stop, np.full(len(start), depth))
        for index, (i, j) in enumerate(zip(start.tolist(), stop.tolist(), strict=True)):
            mode = recompute_choice(part, variant, placement, i, j, depth)
            assert fitting.fits[index] == (mode is not None)
            if mode is not None:
                stage = part.stage(placement, micro_batch=variant.micro_batch, recompute=mode, start=i, stop=j)
                assert fitting.recompute[index] == mode
                assert fitting.backward_s[index] == pytest.approx(stage.backward_s[0], rel=1e-12)
                assert fitting.tail_s[index] == (stage.sync_s + stage.update_s)[0]


@pytest.mark.parametrize(
    ("recompute", "fits", "modes"),
    [
        (Recompute.NEVER, [True, False, False], [False]),
        (Recompute.AUTO, [True, True, False], [False, True]),
        (Recompute.ALWAYS, [True, True, False], [True, True]),
    ],
)
def test_recomputation_follows_the_job(recompute, fits, modes):
    """6 bytes: one layer saves 4, two save 8, or recomputed 1 of input and 4; three 2 of input, 4, and 1 to work."""
    model = chain(3, {"gpu": 2.0}, saved_bytes=4.0, output_bytes=1.0)
    tight = replace(model, layers=(*model.layers[:2], replace(model.layers[2], working_bytes=1.0)))
    cluster = one_server("gpu", 1, memory_bytes=6.0)
    problem = Problem(model=tight, cluster=cluster, job=job(1, recompute=recompute))
    start, stop, depth = np.zeros(3, dtype=np.int64), np.arange(1, 4), np.ones(3, dtype=np.int64)
    found = fit_stages(CostModel(problem), problem.variants[0], SINGLE, start, stop, depth)
    assert found.fits.tolist() == fits
    assert found.recompute[found.fits].tolist() == modes


@LAWS
@given(problems(max_layers=5), st.integers(1, 4))
def test_the_largest_depth_is_the_last_at_which_a_stage_fits(problem, depth):
    """In the mode that it has at a depth, up to the number of micro-batches."""
    variant, start, stop = problem.variants[-1], *every_interval(problem.model.num_layers)
    for part, placement in some_placements(problem, variant):
        most = variant.num_microbatches
        fitted = [
            fit_stages(part, variant, placement, start, stop, np.full(len(start), each)) for each in range(1, most + 1)
        ]
        now = fitted[min(depth, most) - 1]
        for index in np.flatnonzero(now.fits):
            alike = [each.fits[index] and each.recompute[index] == now.recompute[index] for each in fitted]
            assert now.most_depth[index] == most - alike[::-1].index(True)
