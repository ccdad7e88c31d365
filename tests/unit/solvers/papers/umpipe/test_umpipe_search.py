"""All searches of UMPIPE on the same problems, judged by one recurrence and the exact labels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.solvers.papers.umpipe.operators import Breeding
from stagecut.planner.solvers.papers.umpipe.search import METHODS, nearest_allowed, one_after_another, search
from stagecut.planner.sublots.labels import SublotProblem, solve_sublots
from stagecut.planner.sublots.process_chain import ProcessChain, affine
from stagecut.planner.sublots.staircases import makespan_s
from tests.unit.solvers.papers.umpipe.flush_lines import TOY, flushes, lines

SMALL = Breeding(population=16, generations=5)
GENETIC = ("genetic", "dual-genetic", "matrix-genetic")
each_method = pytest.mark.parametrize("method", METHODS)
each_genetic = pytest.mark.parametrize("method", GENETIC)


def _optimum(problem):
    """Least time of lines one after another, and its bound."""
    parts = [solve_sublots(SublotProblem.apart(line)) for line in problem.lines]
    return sum(part.makespan_s for part in parts), sum(part.bound_s for part in parts)


@pytest.mark.parametrize(
    ("method", "sizes", "seconds"),
    [
        # 8 + 2.5 + 9 + 2.8 before the slowest process, its four sublots of 6 + 4, and 2.5 + 5 behind it.
        ("equal-sizes", (4,) * 7, 69.8),
        # 20 + 8.5 + 33 + 5.2 + 22 + 8.5 + 17, one process after another.
        ("local-greedy", (16,) * 7, 114.2),
        ("global-greedy", (8, 4, 4, 4, 4, 2, 2), 73.8),
    ],
)
def test_baselines_find_on_the_problem_of_seven_processes_what_the_page_says(method, sizes, seconds):
    """The optimum is 69.4."""
    found = search(SublotProblem.apart(TOY), method)
    assert found.sizes == (sizes,)
    assert found.makespan_s == pytest.approx(seconds, abs=1e-9)


@each_genetic
def test_genetic_searches_find_an_optimum_of_the_problem_of_seven_processes(method):
    """Such as (4, 2, 2, 2, 4, 2, 2)."""
    problem, breeding = SublotProblem.apart(TOY), Breeding(population=64, generations=20)
    assert problem.value_s(((4, 2, 2, 2, 4, 2, 2),)) == pytest.approx(69.4, abs=1e-9)
    assert search(problem, method, breeding=breeding).makespan_s == pytest.approx(69.4, abs=1e-9)


def test_one_setup_among_processes_without_makes_equal_sizes_slow():
    """64 + 6 with single samples through seven processes, 128 for all at once, 64 + 6 again; equal sizes of 32:

    seven processes of 32 before, two setups of 128, seven of 32 behind.
    """
    times = [(0, 1)] * 7 + [(128, 0)] + [(0, 1)] * 7
    sizes = (1, 2, 4, 8, 16, 32, 64)
    line = ProcessChain(processes=tuple(affine(f"p{i}", *each, 64, sizes) for i, each in enumerate(times)))
    problem = SublotProblem.apart(line)
    assert search(problem, "equal-sizes").makespan_s == 224 + 256 + 224
    assert _optimum(problem)[0] == 268


@each_method
@given(flush=flushes(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_no_search_is_better_than_the_proven_bound(method, flush, seed):
    """And what it says of its sizes is what the recurrence says."""
    problem = one_after_another(*flush)
    found = search(problem, method, seed=seed, breeding=SMALL)
    assert found.makespan_s == sum(map(makespan_s, flush, found.sizes))
    assert found.makespan_s >= _optimum(problem)[1]


@each_genetic
@given(flush=flushes())
@settings(max_examples=15)
def test_genetic_searches_are_never_worse_than_equal_sizes(method, flush):
    """Where every process has all sizes, they begin with them; a tick of rounding is allowed for."""
    every = tuple(range(1, flush[0].num_samples + 1))
    free = tuple(
        ProcessChain(
            processes=tuple(
                affine(p.name, p.seconds[p.sizes[0]], 1.0, flush[0].num_samples, every) for p in line.processes
            ),
            partial_first=line.partial_first,
        )
        for line in flush
    )
    problem = one_after_another(*free)
    equal_s = search(problem, "equal-sizes").makespan_s
    assert search(problem, method, breeding=SMALL).makespan_s <= equal_s * (1 + 1e-12)


@given(flush=flushes(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_matrix_and_plain_evaluation_breed_the_same_answer(flush, seed):
    """TiDGAP is DGAP, to the last bit."""
    problem = one_after_another(*flush)
    dual, matrix = (search(problem, f"{kind}-genetic", seed=seed, breeding=SMALL) for kind in ("dual", "matrix"))
    assert dual == matrix


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_samples", [30, 64])
def test_matrix_and_plain_evaluation_agree_on_longer_lines(seed, num_samples):
    """Eleven processes of unlike times and every fifth size, with default parameters but fewer generations."""
    random = np.random.default_rng(seed)
    sizes = tuple(range(1, num_samples + 1, 5))
    line = ProcessChain(
        processes=tuple(
            affine(f"p{i}", random.uniform(0, 6), random.uniform(0.1, 2), num_samples, sizes) for i in range(11)
        )
    )
    problem, breeding = SublotProblem.apart(line), Breeding(population=64, generations=8)
    dual, matrix = (search(problem, f"{kind}-genetic", seed=seed, breeding=breeding) for kind in ("dual", "matrix"))
    assert dual == matrix


@each_method
@given(line=lines(most_processes=1))
@settings(max_examples=10)
def test_every_search_is_exact_on_a_single_process(method, line):
    """Equal sizes, greedy choice and the first population all hold its best size."""
    found = search(SublotProblem.apart(line), method, breeding=SMALL)
    assert found.makespan_s == min(makespan_s(line, (size,)) for size in line.processes[0].sizes)


@each_genetic
def test_the_seed_decides_the_answer(method):
    """Twice the same with one; on a line this long, ten generations end differently with others."""
    random = np.random.default_rng(1)
    line = ProcessChain(
        processes=tuple(
            affine(f"p{i}", random.uniform(0, 6), random.uniform(0.1, 2), 64, (1, 2, 4, 8, 16, 32)) for i in range(15)
        )
    )
    problem, breeding = SublotProblem.apart(line), Breeding(population=64, generations=10)
    first, again, *others = (search(problem, method, seed=seed, breeding=breeding) for seed in (0, 0, 1, 2, 3))
    assert first == again
    assert any(other.sizes != first.sizes for other in others)


@each_method
def test_a_line_seen_backwards_gets_the_sizes_of_the_line_turned_round(method):
    """The toy once as it is and once backwards: the searches see the same line."""
    found = search(one_after_another(TOY, TOY.reversed()), method, breeding=SMALL)
    alone = search(SublotProblem.apart(TOY), method, breeding=SMALL)
    if method not in GENETIC:
        assert found.sizes == (alone.sizes[0], alone.sizes[0][::-1])
    assert found.makespan_s == pytest.approx(makespan_s(TOY, found.sizes[0]) + makespan_s(TOY, found.sizes[1][::-1]))


@given(flush=flushes())
@settings(max_examples=25)
def test_coupled_problems_get_sizes_that_they_allow(flush):
    """Process 0 may have any pair that its options name."""
    forward, backward = (
        ProcessChain(
            processes=tuple(
                affine("p", 1.0, 1.0, line.num_samples, range(1, line.num_samples + 1)) for _ in line.processes
            ),
            partial_first=line.partial_first,
        )
        for line in flush
    )
    problem = SublotProblem.coupled(forward, backward, range(0, len(forward.processes), 2))
    sizes = search(problem, "local-greedy").sizes
    for index, (there, back) in enumerate(zip(*sizes, strict=True)):
        assert index % 2 == 1 or back % there == 0 or back == forward.num_samples


def test_the_nearest_pair_allowed_keeps_a_union():
    """Backwards of 6 samples are no union of forwards of 4."""
    line = ProcessChain(processes=(affine("p", 1.0, 1.0, 12, (1, 3, 4, 6)),))
    problem = SublotProblem.coupled(line, line, (0,))
    # Factors away: (4, 4) log 6/4 = .41, (3, 6) log 4/3 = .29, (6, 6) log 6/4 = .41.
    assert nearest_allowed(problem, ((4,), (6,))) == ((3,), (6,))


def test_evaluations_count_processes_timed():
    """Seven processes of five sizes: equal 5 x 7; local 7 x 5; global 5 + 6 x 25; bred populations of 16, six times."""
    counts = {method: search(SublotProblem.apart(TOY), method, breeding=SMALL).num_evaluations for method in METHODS}
    assert counts["equal-sizes"] == counts["local-greedy"] == 35
    assert counts["global-greedy"] == 155
    assert {counts[method] for method in GENETIC} == {16 * 6 * 7}


def test_an_unknown_search_is_refused():
    """All names are listed."""
    with pytest.raises(BadInputError, match=r"no search 'ga' \(searches: equal-sizes, local-greedy"):
        search(SublotProblem.apart(TOY), "ga")


def test_a_population_below_its_elite_is_refused():
    """Of four."""
    with pytest.raises(BadInputError, match="at least the elite of 4"):
        Breeding(population=3)
