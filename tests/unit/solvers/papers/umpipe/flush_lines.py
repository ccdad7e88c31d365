"""Lines of processes for the tests of UMPIPE's searches."""

import numpy as np
from hypothesis import strategies as st

from stagecut.planner.sublots.process_chain import Process, ProcessChain, affine

TOY_TIMES = ((4, 1), (0.5, 0.5), (1, 2), (2, 0.2), (6, 1), (0.5, 0.5), (1, 1))
"""Setup and time per sample."""
TOY = ProcessChain(processes=tuple(affine(f"p{i}", *times, 16, (1, 2, 4, 8, 16)) for i, times in enumerate(TOY_TIMES)))


def random_line(random, *, num_samples, num_processes, partial_first=False):
    """Processes of any times, with some sizes each; times of sublots that do not occur are not known."""

    def process(index):
        sizes = random.choice(num_samples, size=random.integers(1, min(5, num_samples) + 1), replace=False) + 1
        seconds = random.uniform(0, 3) + np.cumsum(random.uniform(0, 1, num_samples + 1))
        occurring = [part for size in sizes for part in (size, num_samples % size or size)]
        seconds[np.setdiff1d(np.arange(num_samples + 1), occurring)] = np.nan
        return Process(name=f"p{index}", seconds=seconds, sizes=tuple(sorted(sizes.tolist())))

    return ProcessChain(processes=tuple(map(process, range(num_processes))), partial_first=partial_first)


@st.composite
def lines(draw, *, most_samples=12, most_processes=4):
    """A line in the order of time."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return random_line(
        random,
        num_samples=draw(st.integers(1, most_samples)),
        num_processes=draw(st.integers(1, most_processes)),
    )


@st.composite
def flushes(draw, *, most_samples=12, most_stages=3):
    """Forwards, and backwards seen backwards in time, computations and messages in turn."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = {
        "num_samples": draw(st.integers(1, most_samples)),
        "num_processes": 2 * draw(st.integers(1, most_stages)) - 1,
    }
    return random_line(random, **shape), random_line(random, **shape, partial_first=True)
