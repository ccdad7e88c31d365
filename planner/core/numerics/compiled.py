"""Array loops compiled by numba, with the types of the functions kept."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on its first call, once per machine: the machine code is kept beside the source.

    The global interpreter lock is released while it runs, so that threads share the cores.

    It must not return a named tuple to the interpreter: numba does not look whether the constructor was interrupted,
    and goes on with a null pointer.
    """
    from numba import njit

    _watch()
    _forget_outdated(cast(FunctionType, function))
    kept: Callable[P, R] = njit(cache=True, nogil=True)(function)
    return kept


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Write a function out wherever a compiled one calls it: inner loops then copy no arguments."""
    from numba import njit

    kept: Callable[P, R] = njit(inline="always")(function)
    return kept


def is_compiling() -> bool:
    """Whether a function is being compiled at this moment."""
    return bool(_under_way)


_under_way: list[object] = []
"""What is being compiled, innermost last."""


@cache
def _watch() -> None:
    """Keep track of what is being compiled; kept machine code that is read again does not count."""
    from numba.core.event import Event, Listener, register

    class Watch(Listener):
        def on_start(self, event: Event) -> None:
            _under_way.append(event)

        def on_end(self, event: Event) -> None:
            _under_way.pop()

    register("numba:compile", Watch())


def _forget_outdated(function: FunctionType) -> None:
    """Remove kept machine code that is older than a function it calls: numba looks at the caller's file only."""
    own = Path(function.__code__.co_filename)
    changed_s = max(path.stat().st_mtime for path in (own, *_called_sources(function)))
    with suppress(OSError):  # another process removes the same ones, or the folder cannot be written to
        for index in own.parent.glob(f"__pycache__/{own.stem}.{function.__qualname__}-*.nbi"):
            if index.stat().st_mtime < changed_s:
                index.unlink()


def _called_sources(function: FunctionType) -> Iterator[Path]:
    """Files of the functions that numba made of others and a function calls, directly or not."""
    for name in function.__code__.co_names:
        called = getattr(function.__globals__.get(name), "__wrapped__", None)
        if isinstance(called, FunctionType) and called is not function:
            yield Path(called.__code__.co_filename)
            yield from _called_sources(called)
