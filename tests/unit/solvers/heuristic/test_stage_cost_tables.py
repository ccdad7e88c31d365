"""Which stages fit in memory, for many warm-up depths at once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stagecut.planner.solvers.heuristic.stage_cost_tables import ANY_DEPTH, Capacity


@given(st.integers(1, 6), st.lists(st.integers(1, 9), min_size=1), st.randoms(use_true_random=False))
def test_several_depths_give_the_same_starts_as_each_alone(num_layers, depths, random):
    shape = num_layers + 1, num_layers + 1
    most = np.array([[random.randint(-1, 9) for _ in range(shape[1])] for _ in range(shape[0])])
    most[np.tril_indices(shape[0])] = ANY_DEPTH
    together = Capacity(lambda: most).starts_of(tuple(depths))
    assert together.tolist() == [Capacity(lambda: most).starts(depth).tolist() for depth in depths]
