"""Interleaved cuts that are improved one after another."""

from dataclasses import replace
from itertools import combinations, islice

import numpy as np

from stagecut.planner.solvers.heuristic.interleaved_cuts import Cuts, near
from stagecut.planner.solvers.heuristic.interleaved_polish import InterleavedPolish
from stagecut.planner.solvers.interleaved.shapes import shapes_of
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import INTERLEAVED, chain

PROBLEM = replace(INTERLEAVED.problem, model=chain(12, {"gpu": 2.0}))
"""Twelve layers for four stages, which take 54 s where they are equal."""
OPTIONS = SolveOptions(time_limit_s=None)


def searched(options=OPTIONS):
    """The cuts of the shape with most stages of the best plan's variant."""
    search = Search(PROBLEM, options)
    (variant, *_) = PROBLEM.variants
    own = search.costs.of(variant.share)
    shape = max(shapes_of(own, variant), key=lambda shape: shape.num_stages)
    return search, Cuts.of(own, shape)


def track(search, cuts, stops):
    """A cut with its simulated time, as a start."""
    stops = np.array(stops)
    return cuts, stops, float(cuts.simulated(search, stops[None])[0])


def fastest_s():
    """The least time of all cuts."""
    search, cuts = searched()
    every = [(*inner, 12) for inner in combinations(range(1, 12), cuts.shape.num_stages - 1)]
    return cuts.simulated(search, np.array(every)).min()


def bad_cut(cuts):
    """All layers but one for each other stage in the last stage."""
    return [*range(1, cuts.shape.num_stages), cuts.chunks.num_layers]


def test_a_bad_cut_becomes_the_best_plan():
    search, cuts = searched()
    start = track(search, cuts, bad_cut(cuts))
    assert search.best_s > 1.5 * fastest_s()
    InterleavedPolish([start], seed=0).improve(search)
    assert search.best_s == fastest_s()


def test_every_cut_near_the_best_goes_downhill():
    """Not only the fastest: 54 s of equal stages, 56 s of two and three layers; the third is too slow."""
    search, cuts = searched()
    starts = [track(search, cuts, stops) for stops in ((3, 6, 9, 12), (3, 5, 9, 12), bad_cut(cuts))]
    polish = InterleavedPolish(starts, seed=0)
    polish.improve(search)
    assert [start[2] for start in starts[:2]] == [54.0, 56.0]
    assert polish._tracks[1].seconds < 56.0
    assert polish._tracks[2].seconds == starts[2][2] > 1.1 * 56.0


def test_pieces_go_on_where_the_first_descents_end():
    """There is always one more, and none makes the best plan slower."""
    search, cuts = searched()
    polish = InterleavedPolish([track(search, cuts, bad_cut(cuts))], seed=0)
    best_s = [search.best_s for _ in islice(polish.pieces(search), 20)]
    assert best_s == sorted(best_s, reverse=True)
    assert best_s[-1] == fastest_s()


def test_the_same_seed_gives_the_same_plans():
    counts = []
    for _ in range(2):
        search, cuts = searched()
        polish = InterleavedPolish([track(search, cuts, bad_cut(cuts))], seed=3)
        list(islice(polish.pieces(search), 5))
        counts.append((search.best_plan, search.best_s, dict(search.result("", proves=False).counts)))
    assert counts[0] == counts[1]


def test_much_slower_cuts_wait():
    """The fastest one of the shape is known; from a slower one nothing is simulated."""
    search, cuts = searched()
    slow = track(search, cuts, bad_cut(cuts))
    InterleavedPolish([slow], seed=0).improve(search)
    before = dict(search.result("", proves=False).counts)
    list(islice(InterleavedPolish([slow], seed=0).pieces(search), 5))
    assert dict(search.result("", proves=False).counts) == before


def test_without_time_nothing_is_simulated():
    search, cuts = searched(SolveOptions(time_limit_s=1e-9))
    polish = InterleavedPolish([(cuts, np.array(bad_cut(cuts)), 1.0)], seed=0)
    list(islice(polish.pieces(search), 3))
    assert search.best_plan is None


def test_neighbours_shift_few_layers():
    """At most eight in all, and no stage is empty."""
    stops = np.array([10, 20, 30, 40])
    cuts = near(stops)
    assert 0 < np.abs(cuts - stops).sum(axis=1).max() <= 8
    assert (np.diff(cuts, axis=1, prepend=0) > 0).all()
