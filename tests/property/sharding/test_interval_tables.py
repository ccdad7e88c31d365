"""The cheapest shardings of stages are those that enumeration finds, and cost what their strategies say."""

import itertools
import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import Link
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.operators.strategy import LayerStrategy, StageSharding
from stagecut.planner.cost.interval_tables import cheapest_strategies, interval_table
from stagecut.planner.cost.operator_times import layer_works
from stagecut.planner.cost.sharding_sums import sharding_sums
from stagecut.planner.sharding.layer_costs import Cost, Prices, priced
from stagecut.planner.sharding.layer_tables import layer_table
from stagecut.planner.sharding.mesh import Mesh, MeshAxis
from stagecut.planner.sharding.options import options_of
from tests.property.sharding.sharded_problems import sharded_problems

MOST_CHOICES = 400


@st.composite
def meshes(draw):
    sizes = draw(st.sampled_from(((2,), (2,), (2, 2))))
    links = [Link(bandwidth_bytes_per_s=draw(st.sampled_from((0.5, 4.0))), latency_s=0.1) for _ in sizes]
    return Mesh(axes=tuple(MeshAxis(size=size, link=link) for size, link in zip(sizes, links, strict=True)))


@st.composite
def price_lists(draw):
    return Prices(
        num_microbatches=draw(st.sampled_from((1, 4))),
        sync_s_per_param=draw(st.sampled_from((0.0, 0.5))),
        update_s_per_param=draw(st.sampled_from((0.0, 0.1))),
        num_holders=draw(st.sampled_from((1, 2))),
        held_s_per_byte=draw(st.sampled_from((0.0, 0.01, 10.0))),
    )


class Case:
    """The layers of a problem on one mesh."""

    def __init__(self, problem, mesh, prices):
        self.mesh, self.prices = mesh, prices
        self.weights = {
            "optimizer": problem.job.optimizer,
            "element_bytes": problem.model.precision.num_bytes,
        }
        self.works = layer_works(problem.model, problem.cluster.device_types[0], 4)
        self.options = [
            [options_of(own, mesh, 4, kinds=problem.job.sharding, **self.weights) for own in work.operators]
            for work in self.works
        ]

    def table(self, index, before):
        return layer_table(self.mesh, self.works[index], self.options[index], before=before, prices=[self.prices])

    def tables(self):
        firsts = [self.table(index, None) for index in range(len(self.works))]
        layers = [firsts[0]]
        for index in range(1, len(self.works)):
            layers.append(self.table(index, layers[-1].states))
        return layers, firsts

    def num_choices(self, start, stop):
        return math.prod(len(own.strategies) for layer in self.options[start:stop] for own in layer)

    def enumerated(self, start, stop):
        """Sums of every sharding of the stage."""
        layers = [
            [LayerStrategy(operators=chosen) for chosen in itertools.product(*(own.strategies for own in layer))]
            for layer in self.options[start:stop]
        ]
        for chosen in itertools.product(*layers):
            try:
                yield self.sums(start, stop, chosen)
            except BadInputError:  # Partial sums would have to be made of something else.
                continue

    def sums(self, start, stop, strategies):
        sharding = StageSharding(mesh=self.mesh.sizes, layers=strategies)
        return sharding_sums(self.works[start:stop], sharding, self.mesh, **self.weights)

    def value_s(self, sums):
        return float(priced(sums[None], self.prices)[0])


@settings(max_examples=35)
@given(sharded_problems(), meshes(), price_lists(), st.data())
def test_the_value_of_an_interval_is_the_least_over_all_shardings(problem, mesh, prices, data):
    case = Case(problem, mesh, prices)
    start = data.draw(st.integers(0, len(case.works) - 1))
    stop = data.draw(st.integers(start + 1, len(case.works)))
    assume(case.num_choices(start, stop) <= MOST_CHOICES)
    least_s = min(case.value_s(sums) for sums in case.enumerated(start, stop))
    found_s = interval_table(*case.tables()).value_s[0, start, stop]
    assert math.isclose(found_s, least_s, rel_tol=1e-9, abs_tol=1e-12)


@settings(max_examples=35)
@given(sharded_problems(max_layers=4), meshes(), price_lists())
def test_the_costs_of_an_interval_are_those_of_its_strategies(problem, mesh, prices):
    case = Case(problem, mesh, prices)
    layers, firsts = case.tables()
    table = interval_table(layers, firsts)
    for start, stop in itertools.combinations(range(len(layers) + 1), 2):
        strategies = cheapest_strategies(firsts[start], layers[start + 1 : stop], price=0)
        sums = case.sums(start, stop, strategies)
        np.testing.assert_allclose(table.costs[0, start, stop], sums, rtol=1e-9, atol=1e-12)
        assert math.isclose(table.value_s[0, start, stop], case.value_s(sums), rel_tol=1e-9, abs_tol=1e-12)
        assert table.costs[0, start, stop, Cost.SAVED_BYTES] >= 0
