"""Progress while a search runs."""

import io

from numba.core.event import trigger_event

from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.core.result import HistoryPoint
from stagecut.planner.report.progress import progress, time_words

POINT = HistoryPoint(seconds=1.0, objective_s=0.2, bound_s=0.15)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_line_names_best_bound_gap_and_time():
    """(0.2 - 0.15) / 0.2 = 25 %."""
    assert time_words(POINT) == "best 200 ms  bound 150 ms  gap 25.00 %"


def test_line_before_the_first_plan_has_dashes():
    assert time_words(None) == "best -  bound -  gap -"


def test_output_to_a_file_ends_with_the_last_point():
    stream = io.StringIO()
    with progress(stream) as observe:
        observe(HistoryPoint(seconds=0.5, objective_s=0.4, bound_s=None))
        observe(POINT)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("best 200 ms  bound 150 ms")
    assert "\x1b" not in stream.getvalue()


def test_lines_begin_with_the_solver_where_several_run():
    stream = io.StringIO()
    with progress(stream, solver="dp") as observe:
        observe(POINT)
    assert stream.getvalue().startswith("dp: best 200 ms")


def test_line_says_that_functions_are_being_compiled():
    stream = io.StringIO()
    compiled(lambda: 0)  # watched from the first compiled function on
    with trigger_event("numba:compile"), progress(stream):
        pass
    with progress(stream):
        pass
    compiling, not_compiling = stream.getvalue().splitlines()
    assert compiling.endswith(" s  compiling, once per machine")
    assert not_compiling.endswith(" s")


def test_quiet_writes_nothing():
    stream = io.StringIO()
    with progress(stream, quiet=True) as observe:
        observe(POINT)
    assert stream.getvalue() == ""


def test_terminal_shows_one_live_line(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = _Terminal()
    with progress(stream) as observe:
        observe(POINT)
    assert "best 200 ms" in stream.getvalue()


def test_dumb_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = _Terminal()
    with progress(stream) as observe:
        observe(POINT)
    assert "\x1b" not in stream.getvalue()


def test_failure_inside_is_passed_on_after_the_last_line():
    stream = io.StringIO()
    try:
        with progress(stream) as observe:
            observe(POINT)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert stream.getvalue().startswith("best 200 ms")
