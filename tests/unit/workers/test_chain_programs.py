"""Chain programs, min-max cuts and packings against enumeration."""

from itertools import combinations, permutations

import numpy as np
import pytest

from stagecut.planner.solvers.papers.hetpipe import bracket
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.workers.columns import Column, chain_load_s, with_stages
from stagecut.planner.workers.packing import LoadRow, fastest_packing, pack
from stagecut.planner.workers.rows.chain_program import Chain, Runs, SuffixValues
from stagecut.planner.workers.rows.chains import Chains
from stagecut.planner.workers.rows.kinds import Kinds, Lattice
from stagecut.planner.workers.rows.min_max import min_max_stops
from stagecut.planner.workers.rows.periods import least_period, period_of
from stagecut.planner.workers.rows.row_tables import RowTables, Setting
from stagecut.planner.workers.rows.worker_rows import WorkerRows
from stagecut.planner.workers.wave_search import WaveSearch
from tests.unit.workers.test_wave_policies import hetpipe_16, without

LAYERS, COUNTS = 4, np.array([2, 1])


def squares(rng, number):
    """Random numbers for every run of layers, infinite where there is none."""
    values = rng.integers(1, 9, (number, LAYERS + 1, LAYERS + 1)).astype(float)
    values[:, np.tril(np.ones((LAYERS + 1, LAYERS + 1), dtype=bool))] = np.inf
    return values


def enumerated(pattern, add, floor, links):
    """The least value of a pattern over all orders and cuts."""
    kinds = [kind for kind, count in enumerate(pattern) for _ in range(count)]
    best = np.inf
    for order in set(permutations(kinds)):
        for inner in combinations(range(1, LAYERS), len(kinds) - 1):
            cuts, value = (0, *inner, LAYERS), 0.0
            for index in reversed(range(len(order))):
                kind, start, stop = order[index], cuts[index], cuts[index + 1]
                link = links[kind, order[index + 1], stop] if index + 1 < len(order) else 0.0
                value = max(floor[kind, start, stop], add[kind, start, stop] + link + value)
            best = min(best, value)
    return best


@pytest.mark.parametrize("seed", range(5))
def test_values_of_all_patterns_are_those_of_the_best_order_and_cut(seed):
    rng = np.random.default_rng(seed)
    add, floor = squares(rng, 2), squares(rng, 2)
    links = rng.integers(0, 4, (2, 2, LAYERS + 1)).astype(float)
    lattice = Lattice(COUNTS, 3)
    start, stop = np.triu_indices(LAYERS + 1, k=1)

    def runs(kind):
        own, least = add[kind][start, stop][:, None], floor[kind][start, stop][:, None]
        return Runs(start=start, stop=stop, grown=lambda behind: np.maximum(behind + own, least))

    values = SuffixValues(lattice, [runs(kind) for kind in range(2)], links[None])
    for number, level in enumerate(lattice.levels[1:], start=1):
        for row, pattern in enumerate(level.tolist()):
            assert values.whole()[number][row] == enumerated(pattern, add, floor, links)


@pytest.mark.parametrize("seed", range(5))
def test_no_stages_with_finite_values_are_missed(seed):
    rng, most = np.random.default_rng(seed), 12.0
    add = squares(rng, 2)
    start, stop = np.triu_indices(LAYERS + 1, k=1)

    def runs(kind):
        own = add[kind][start, stop][:, None]

        def grown(behind):
            return np.where(behind + own <= most, behind + own, np.inf)

        return Runs(start=start, stop=stop, grown=grown)

    values = SuffixValues(Lattice(COUNTS, 3), [runs(0), runs(1)], np.zeros((1, 2, 2, LAYERS + 1)))
    for pattern in ((1, 0), (1, 1), (2, 1)):
        kinds = [kind for kind, count in enumerate(pattern) for _ in range(count)]
        found = {(own.kinds, own.stops) for own in values.chains(pattern)}
        assert len(found) == len(list(values.chains(pattern)))
        assert found >= {
            (order, (*inner, LAYERS))
            for order in set(permutations(kinds))
            for inner in combinations(range(1, LAYERS), len(kinds) - 1)
            if sum(add[own, i, j] for own, i, j in zip(order, (0, *inner), (*inner, LAYERS), strict=True)) <= most
        }


def test_a_column_for_each_way_to_occupy_links_least():
    """V and R workers of VGG-19: no stages that keep the period occupy all links less than some of the columns."""
    chains, setting = chains_of(without(hetpipe_16(), 2, 3)), Setting.of(3, num_workers=2)
    period_s = 1.5 * least_period(chains, setting, [(1, 1)])[0]
    values = chains.fastest(setting, period_s)
    columns = with_stages(chains, setting, period_s, values, Column(pattern=(1, 1), cost=1.0, covers=()))

    def loads(chain):
        return np.array([chain_load_s(chains, setting, chain, own) for own in chains.kinds.resources])

    every = [Chain(kinds=order, stops=(cut, 19)) for order in ((0, 1), (1, 0)) for cut in range(1, 19)]
    keeping = [own for own in every if WorkerRows(chains, setting, own).least_depths(period_s) is not None]
    assert len(keeping) > len(columns) > 0
    assert all(any(np.all(loads(own.chain) <= loads(chain)) for own in columns) for chain in keeping)
    assert not any(np.all(loads(a.chain) <= loads(b.chain)) for a in columns for b in columns if a is not b)


@pytest.mark.parametrize("seed", range(5))
def test_the_smallest_largest_part_is_that_of_hetpipes_program(seed):
    sizes = squares(np.random.default_rng(seed), 3)
    largest, stops = min_max_stops(sizes)
    starts = (0, *stops[:-1])
    assert largest == max(sizes[q, start, stop] for q, (start, stop) in enumerate(zip(starts, stops, strict=True)))
    low, high = bracket(sizes)
    assert low < largest <= high


def chains_of(problem):
    """Chain programs over all patterns of a problem."""
    tables = RowTables(problem, Kinds(problem))
    return Chains(tables, Lattice(tables.kinds.counts, 8))


def test_the_least_period_is_kept_by_its_stages_and_by_none_below():
    chains, setting = chains_of(without(hetpipe_16(), 1, 2)), Setting.of(3, num_workers=2)
    least_s, found = least_period(chains, setting, [(1, 1)])
    period_s = period_of(chains, setting, found[1, 1])
    assert least_s <= period_s <= least_s * (1 + 2e-4)
    below = chains.fastest(setting, least_s * (1 - 1e-9)).whole()
    assert np.isinf(below[2][chains.lattice.row((1, 1))])


def packed(rows=(), **choices):
    """Indices of patterns of two devices, packed into two of one kind and two of another."""
    search = WaveSearch(hetpipe_16(), SolveOptions())
    patterns = [(2, 0), (1, 1), (0, 2)]
    common = {"num_workers": 2, "covers": [], "cost": np.array([1.0, 5.0, 1.0]), "rows": rows}
    return pack(search, patterns, np.array([2, 2]), **common | choices)


def test_the_cheapest_packing_is_found():
    assert packed() == [0, 2]


def test_a_packing_keeps_rows_of_links():
    # Two workers of a kind each would take 6 s of 5 s.
    row = LoadRow(load_s=np.array([3.0, 2.0, 3.0]), room_s=5.0)
    assert packed([row]) == [1, 1]


def test_too_many_workers_or_none_that_is_needed_are_not_packed():
    assert packed(num_workers=3) is None
    assert packed(covers=[np.zeros(3, dtype=bool)]) is None


def test_rates_add_up_to_the_most():
    search = WaveSearch(hetpipe_16(), SolveOptions())
    rates = np.array([3.0, 2.0, 1.5])
    bound, chosen = fastest_packing(search, [(2, 0), (1, 1), (0, 2)], rates, np.array([2, 2]), most=4)
    assert bound == pytest.approx(4.5, rel=1e-5)
    assert chosen == [(2, 0), (0, 2)]
