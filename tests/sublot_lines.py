"""Lines of processes for tests: random ones, and short ways to write some."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from stagecut.planner.sublots.process_chain import Process, ProcessChain, affine

WHOLE = st.integers(0, 6).map(float)
"""Times with many ties."""
REAL = st.floats(0.0, 6.0, allow_subnormal=False)


def affine_chain(setups_s, per_sample_s, num_samples, sizes=None, *, partial_first=False):
    """Processes with T(x) = a + c x; all sizes if none are named."""
    sizes = sizes or range(1, num_samples + 1)
    pairs = zip(setups_s, per_sample_s, strict=True)
    processes = (affine(f"p{i}", float(a), float(c), num_samples, sizes) for i, (a, c) in enumerate(pairs))
    return ProcessChain(processes=tuple(processes), partial_first=partial_first)


def map_processes(chain, change):
    """The line with every process changed by a function of its index and itself."""
    return replace(chain, processes=tuple(change(*numbered) for numbered in enumerate(chain.processes)))


@st.composite
def lines(draw, *, max_samples=7, max_processes=4, releases=True, lengths=None, partial_first=None, always=()):
    """Lines with tables of any shape, affine times and times without setups; sizes in `always` are among all choices.

    `lengths` gives the numbers of samples and processes, otherwise drawn.
    """
    num_samples, num_processes = lengths or (draw(st.integers(1, max_samples)), draw(st.integers(1, max_processes)))
    times = draw(st.sampled_from((WHOLE, REAL)))
    return ProcessChain(
        processes=tuple(
            Process(
                name=f"p{index}",
                seconds=draw(_tables(num_samples, times)),
                sizes=tuple(sorted({*always, *draw(st.sets(st.integers(1, num_samples), min_size=1, max_size=3))})),
                release_s=draw(st.sampled_from((0.0, 0.0, 3.0, 11.0))) if releases else 0.0,
            )
            for index in range(num_processes)
        ),
        partial_first=draw(st.booleans()) if partial_first is None else partial_first,
    )


def _tables(num_samples, times):
    """T(0) .. T(N)."""
    samples = np.arange(num_samples + 1.0)
    tables = st.lists(times, min_size=num_samples + 1, max_size=num_samples + 1).map(np.array)
    return st.one_of(tables, st.builds(lambda a, c: a + c * samples, times, times), times.map(lambda c: c * samples))


@st.composite
def coupled_lines(draw, *, max_samples=6, max_processes=3):
    """Forwards, backwards seen backwards in time, and the indices of the processes that are coupled.

    Forwards may work with single samples, so that every backward is allowed with some forward.
    """
    lengths = draw(st.integers(1, max_samples)), draw(st.integers(1, max_processes))
    forward = draw(lines(lengths=lengths, partial_first=False, always=(1,)))
    backward = draw(lines(lengths=lengths, partial_first=True))
    return forward, backward, draw(st.sets(st.integers(0, lengths[1] - 1)))
