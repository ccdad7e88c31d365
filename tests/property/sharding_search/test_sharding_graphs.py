"""Models on meshes as choice graphs: every way to solve them agrees, and so does what an answer costs."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.choice_graphs.building import least_total
from stagecut.planner.choice_graphs.evaluation import evaluate
from stagecut.planner.choice_graphs.exact.brute_force import MOST_CHOICES, try_all
from stagecut.planner.choice_graphs.exact.integer_program import ProgramLimits, solve_program
from stagecut.planner.choice_graphs.solving.solve import solve
from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.operators.strategy import LayerStrategy, StageSharding, Strategy
from stagecut.planner.core.result import Status
from stagecut.planner.cost.operator_times import layer_works
from stagecut.planner.cost.sharding_sums import sharding_sums
from stagecut.planner.sharding.layer_costs import Cost
from stagecut.planner.sharding.strategies import strategies
from stagecut.planner.sharding_search.assembling import MOST_LEVELS
from stagecut.planner.sharding_search.case import ShardingCase
from stagecut.planner.sharding_search.coordinate_descent import coordinate_descent
from stagecut.planner.sharding_search.sharding_costs import sharding_costs
from stagecut.planner.sharding_search.sharding_graph import Sharding, ShardingGraph, sharding_graph
from stagecut.planner.solvers.search.options import SolveOptions
from tests.sharding_models import case_of, random_model

EXAMPLES = 20
BY_HIGHS = 2e-6
"""Bounds of programs are lowered by a millionth."""
EXACTLY = SolveOptions(gap=0.0, time_limit_s=None)


@st.composite
def cases(draw: st.DrawFn, *, most_layers: int = 2) -> ShardingCase:
    """Random models on small meshes; in most cases memory is between what is needed and what would be ample."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.sampled_from([(2,), (4,), (2, 2)]))
    model = random_model(random, most_layers=most_layers)
    case = case_of(model, *sizes, micro_batch=4, num_microbatches=draw(st.integers(1, 3)))
    part = draw(st.sampled_from([None, -0.01, 0.01, 0.1, 0.3, 0.6]))
    return case if part is None else _with_memory(case, part)


def _with_memory(case: ShardingCase, part: float) -> ShardingCase:
    """A device with what every choice needs and a part of what it could use beyond that."""
    graph = sharding_graph(case).graph
    least, most = (sum(of(graph.usage[graph.options(v)].tolist()) for v in range(graph.num_nodes)) for of in (min, max))
    return replace(case, device=replace(case.device, memory_bytes=max(0.0, least + part * (most - least))))


@given(cases(), st.integers(0, 2**32 - 1))
@settings(max_examples=EXAMPLES)
def test_a_choice_costs_what_its_operators_and_conversions_do(case, seed):
    for tied in (False, True):
        graph = sharding_graph(case, tied=tied)
        choices = np.random.default_rng(seed).integers(graph.graph.num_options)
        found, costs = evaluate(graph.graph, choices), sharding_costs(case, graph.decode(choices.tolist()))
        cost_s = found.cost * graph.unit_s
        if "exclude each other" not in "".join(found.faults):
            assert cost_s == pytest.approx(costs.iteration_s, abs=graph.rounding_s, rel=1e-12)
            assert costs.memory_bytes <= found.peak_usage + 1e-6 * costs.memory_bytes


@given(cases())
@settings(max_examples=EXAMPLES)
def test_exact_program_and_exhaustive_search_agree_and_bound_the_descent(case):
    graph = sharding_graph(case).graph
    assume(np.prod(graph.num_options.astype(float)) <= MOST_CHOICES / 16)
    best, exact = try_all(graph), solve(graph, EXACTLY)
    program, descent = solve_program(graph, ProgramLimits()), coordinate_descent(graph, num_starts=3)
    if best is None:
        assert exact.status is Status.INFEASIBLE
        assert program.choices is None
        assert descent is None
        return
    least = evaluate(graph, best).cost
    assert exact.objective == least
    assert (1 - BY_HIGHS) * least <= exact.bound <= least
    assert program.choices is not None
    assert evaluate(graph, program.choices).cost == least
    assert descent is None or evaluate(graph, descent).cost >= least
    assert least_total(graph) <= least


@given(cases(most_layers=1))
@settings(max_examples=EXAMPLES)
def test_no_sharding_is_cheaper_than_the_optimum_of_the_graph(case):
    # every strategy with every storage, without any graph
    operators = operators_of(case.model.layers[0])
    assume(len(operators) <= 2)
    graph = sharding_graph(case)
    assume(graph.graph.num_options[-1] < MOST_LEVELS)  # no level of working memory stands for several
    fitting = [
        costs.iteration_s
        for sharding in _all_shardings(case)
        if (costs := sharding_costs(case, sharding)).memory_bytes <= case.device.memory_bytes - _ROUNDED_UP_BYTES
        and costs.iteration_s < np.inf
    ]
    found = solve(graph.graph, EXACTLY)
    if found.choices is None:
        assert not fitting
    else:
        own = sharding_costs(case, graph.decode(found.choices))
        assert own.memory_bytes <= case.device.memory_bytes
        assert own.iteration_s <= min(fitting, default=np.inf) + 2 * graph.rounding_s
        assert graph.least_s(found.bound) <= own.iteration_s


@given(cases())
@settings(max_examples=EXAMPLES)
def test_tied_layers_are_never_cheaper(case):
    free, tied = (_solved(sharding_graph(case, tied=each)) for each in (False, True))
    assert tied >= (1 - 1e-9) * free


@given(cases())
@settings(max_examples=EXAMPLES)
def test_a_sharding_costs_what_a_stage_divided_alike_does(case):
    graph = sharding_graph(case)
    found = solve(graph.graph, EXACTLY)
    assume(found.choices is not None)
    sharding = graph.decode(found.choices)
    stage = StageSharding(mesh=case.mesh.sizes, layers=sharding.layers)
    works = layer_works(case.model, case.device, case.micro_batch)
    own, sums = (
        sharding_costs(case, sharding),
        sharding_sums(works, stage, case.mesh, optimizer=case.optimizer, element_bytes=2),
    )
    both_s = case.num_microbatches * (sums[Cost.FORWARD_S] + sums[Cost.BACKWARD_S])
    assert own.compute_s + own.collectives_s == pytest.approx(both_s)
    assert own.sync_s == pytest.approx(sums[Cost.SYNC_S])
    assert own.weight_bytes == pytest.approx(sums[Cost.WEIGHT_BYTES])
    assert own.gradient_bytes == pytest.approx(sums[Cost.GRADIENT_BYTES])
    assert own.optimizer_bytes == pytest.approx(sums[Cost.STATE_BYTES])
    assert own.saved_bytes == pytest.approx(sums[Cost.SAVED_BYTES])
    assert own.working_bytes == pytest.approx(sums[Cost.WORKING_BYTES])


_ROUNDED_UP_BYTES = 10.0
"""Bytes of every node are rounded up."""


def _solved(graph: ShardingGraph) -> float:
    found = solve(graph.graph, EXACTLY)
    return np.inf if found.choices is None else sharding_costs(graph.case, graph.decode(found.choices)).iteration_s


def _all_shardings(case: ShardingCase) -> Iterator[Sharding]:
    operators = operators_of(case.model.layers[0])
    options = [strategies(operator, case.mesh.sizes, samples=case.micro_batch) for operator in operators]
    for chosen in itertools.product(*options):
        own: tuple[Strategy, ...] = chosen
        yield Sharding(layers=(LayerStrategy(operators=own),))
