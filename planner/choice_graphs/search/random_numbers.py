"""Random numbers of a state of one's own, so that searches in several threads repeat themselves."""

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.numerics.compiled import compiled

Words = NDArray[np.uint64]


def random_state(seed: int) -> Words:
    """A state for :func:`below` and :func:`fraction`; equal seeds give equal numbers."""
    return np.random.SeedSequence(seed).generate_state(1, dtype=np.uint64) | np.uint64(1)


@compiled
def _step(state: Words) -> np.uint64:
    """xorshift64* (Marsaglia 2003; Vigna 2016)."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    number: np.uint64 = x * np.uint64(2685821657736338717)
    return number


@compiled
def below(state: Words, limit: int) -> int:
    """A whole number from 0 to limit - 1, even but for 2^-32 of the limit."""
    return int(((_step(state) >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))


@compiled
def fraction(state: Words) -> float:
    """A number from 0 up to 1, without 1."""
    return float(_step(state) >> np.uint64(11)) / 9007199254740992.0
