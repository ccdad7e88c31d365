"""Machine code is kept between processes, but not longer than the functions it was made of."""

import importlib
import os
import sys

import pytest

CALLED = """
from stagecut.planner.core.numerics.compiled import inlined

@inlined
def price(number):
    return {price} * number
"""
WRITTEN_OUT = """
from numba.extending import intrinsic

@intrinsic
def price(_, number):
    return number(number), lambda _, builder, __, values: builder.fmul(values[0].type({price}), values[0])
"""
CALLING = """
from called import price
from stagecut.planner.core.numerics.compiled import compiled

@compiled
def total(count):
    return price(count) + 1.0
"""


@pytest.fixture
def total_at(tmp_path, monkeypatch):
    """Gives what the loop returns for 2 in a process that starts with `price` as stated, written at that second."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "calling.py").write_text(CALLING)
    os.utime(tmp_path / "calling.py", (1e9, 1e9))

    def total_of_two(price, *, written_s, called=CALLED):
        (tmp_path / "called.py").write_text(called.format(price=price))
        os.utime(tmp_path / "called.py", (written_s, written_s))
        importlib.invalidate_caches()
        for name in ("called", "calling"):
            sys.modules.pop(name, None)
        calling = importlib.import_module("calling")
        return calling.total(2.0), sum(calling.total.stats.cache_hits.values())

    yield total_of_two
    for name in ("called", "calling"):
        sys.modules.pop(name, None)


def test_machine_code_is_kept(total_at):
    assert total_at(3.0, written_s=1e9) == (7.0, 0)
    assert total_at(3.0, written_s=1e9) == (7.0, 1)


@pytest.mark.parametrize("called", [CALLED, WRITTEN_OUT])
def test_machine_code_older_than_a_function_it_calls_is_made_again(total_at, called):
    assert total_at(3.0, written_s=1e9, called=called) == (7.0, 0)
    assert total_at(5.0, written_s=4e9, called=called) == (11.0, 0)
