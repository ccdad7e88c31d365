"""Array loops compiled by numba, with the types of the functions kept."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on its first call, once per machine: the machine code is kept beside the source.

    The global interpreter lock is released while it runs, so that threads share the cores.
    """
    from numba import njit

    kept: Callable[P, R] = njit(cache=True, nogil=True)(function)
    return kept


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Write a function out wherever a compiled one calls it: inner loops then copy no arguments."""
    from numba import njit

    kept: Callable[P, R] = njit(inline="always")(function)
    return kept
