"""The search over meshes: what it returns, and how it ends."""

import threading

import pytest

from stagecut.planner.core.result import Status, StopCause
from stagecut.planner.sharding_search.method import Method
from stagecut.planner.sharding_search.scheme_search import SchemeSearch, search_sizes
from stagecut.planner.sharding_search.sharding_graph import sharding_graph
from stagecut.planner.solvers.search.options import SolveOptions
from tests.sharding_models import attention, case_of, model_of

UNLIMITED = SolveOptions(time_limit_s=None)


def _cases(memory_bytes=float("inf"), micro_batch=8, sizes=((8,), (2, 4))):
    model = model_of(*(attention(f"a{number}") for number in range(3)))
    num = 8 // micro_batch
    return [
        case_of(model, *each, memory_bytes=memory_bytes, micro_batch=micro_batch, num_microbatches=num)
        for each in sizes
    ]


def test_the_exact_answer_is_no_slower_than_any_other_and_proven():
    result = SchemeSearch(_cases(), Method.EXACT, UNLIMITED).run()
    assert result.status is Status.OPTIMAL
    assert result.best is not None
    assert result.bound_s <= result.best.costs.iteration_s <= min(each.costs.iteration_s for each in result.schemes)
    descent = SchemeSearch(_cases(), Method.COORDINATE_DESCENT, UNLIMITED).run()
    assert descent.bound_s is None
    assert descent.best.costs.iteration_s >= result.bound_s


def test_less_memory_is_never_faster():
    ample, tight = (SchemeSearch(_cases(each), Method.EXACT, UNLIMITED).run() for each in (30e6, 15e6))
    assert ample.best.costs.iteration_s <= tight.best.costs.iteration_s * (1 + 1e-9)
    assert tight.best.costs.memory_bytes <= 15e6
    assert not all(scheme.fits for scheme in tight.schemes)


def test_what_fits_nowhere_is_told_with_the_bytes():
    result = SchemeSearch(_cases(1e6), Method.EXACT, UNLIMITED).run()
    assert result.status is Status.INFEASIBLE
    assert result.best is None
    assert "mesh 8: every sharding needs at least" in result.overflow
    assert "per device, which has 1 MB" in result.overflow


def test_smaller_micro_batches_are_tried_until_something_fits():
    # a byte less than no sharding of the whole batch can do without
    limit_bytes = min(sharding_graph(case).least_bytes for case in _cases()) - 1
    assert SchemeSearch(_cases(limit_bytes), Method.EXACT, UNLIMITED).run().status is Status.INFEASIBLE
    result = search_sizes(lambda size: _cases(limit_bytes, size), (8, 4, 2, 1), Method.EXACT, UNLIMITED)
    assert result.best.case.micro_batch < 8
    assert result.best.costs.memory_bytes <= limit_bytes


@pytest.mark.parametrize("method", list(Method))
def test_a_cancelled_search_keeps_what_it_has(method):
    cancelled = threading.Event()
    search = SchemeSearch(_cases(), method, UNLIMITED, observer=lambda _: cancelled.set(), cancelled=cancelled)
    result = search.run()
    assert result.status is Status.INTERRUPTED
    assert result.stopped_by is StopCause.USER
    assert result.best is not None
    assert result.bound_s is None
