"""1F1B as a baseline: the simulator's time, where the simulator can play it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.simulator.timeline import simulate
from stagecut.planner.solvers.papers.umpipe.one_f_one_b import iteration_s, one_f_one_b
from stagecut.planner.sublots.process_chain import ProcessChain, affine
from tests.pipelines import pipeline_costs


def _line(per_sublot_s, *, num_samples, sizes):
    """Processes that take so long for a sublot of any size."""
    return ProcessChain(
        processes=tuple(affine(f"p{i}", each, 0.0, num_samples, sizes) for i, each in enumerate(per_sublot_s))
    )


@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_times_are_those_of_the_simulator(num_stages, micro_batches, seed):
    """Stages of any F and B, messages that take as long both ways."""
    random = np.random.default_rng(seed)
    forward_s, backward_s = random.uniform(0, 2, (2, num_stages))
    message_s = random.uniform(0, 1, num_stages - 1)
    simulated = simulate(pipeline_costs(forward_s, backward_s, message_s, micro_batches=micro_batches)).iteration_s
    forwards, backwards = np.empty((2, 2 * num_stages - 1))
    forwards[::2], forwards[1::2] = forward_s, message_s
    backwards[::2], backwards[1::2] = backward_s[::-1], message_s[::-1]
    lines = (_line(each, num_samples=micro_batches, sizes=(1,)) for each in (forwards, backwards))
    assert iteration_s(*lines, 1) == pytest.approx(simulated)


def test_the_best_size_is_taken_and_the_last_micro_batch_may_be_smaller():
    """One stage, a = 1 and c = 1 each way: of 5 samples, size 5 takes 6 + 6 s, size 3 (4 + 3) + (4 + 3) s."""
    line = ProcessChain(processes=(affine("p", 1.0, 1.0, 5, (3, 5)),))
    assert one_f_one_b(line, line) == (12.0, 5)
    assert iteration_s(line, line, 3) == 14.0


def test_processes_without_a_common_size_are_refused():
    """Forwards of 1 or 2, backwards of 4."""
    forward, backward = (ProcessChain(processes=(affine("p", 1.0, 1.0, 4, sizes),)) for sizes in ((1, 2), (4,)))
    with pytest.raises(BadInputError, match="one at least that all processes have"):
        one_f_one_b(forward, backward)
