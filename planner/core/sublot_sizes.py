"""Samples cut into sublots of one size, the last one possibly smaller."""

from functools import lru_cache

import numpy as np

from stagecut.planner.core.numerics.arrays import Ints


@lru_cache(maxsize=4096)
def sublot_cuts(num_samples: int, size: int, *, partial_first: bool = False) -> Ints:
    """Boundaries 0 = c_0 < ... < c_J = N of N samples in sublots of one size, shape (J + 1,).

    Seen backwards in time the smaller sublot leads: `partial_first`.
    """
    cuts: Ints = np.append(np.arange(0, num_samples, size), num_samples)
    return num_samples - cuts[::-1] if partial_first else cuts


def sublot_lengths(num_samples: int, size: int) -> tuple[int, ...]:
    """Lengths of the sublots of one size, in order."""
    return tuple(np.diff(sublot_cuts(num_samples, size)).tolist())


def is_union(num_samples: int, part: int, whole: int) -> bool:
    """Whether every sublot of the second size is made of whole sublots of the first."""
    return whole % part == 0 or whole >= num_samples


def powers_of_two(num_samples: int) -> tuple[int, ...]:
    """1, 2, 4, ... up to the number of samples."""
    return tuple(1 << power for power in range(num_samples.bit_length()))


def divisors(num_samples: int) -> tuple[int, ...]:
    """All divisors of the number of samples."""
    return tuple(size for size in range(1, num_samples + 1) if num_samples % size == 0)
