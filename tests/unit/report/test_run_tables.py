"""Tables of runs: the right cells. The run: tests/runs.py."""

import io
import re
from dataclasses import replace

import pytest

from stagecut.planner.core.run_record import accuracy
from stagecut.planner.report.run_tables import (
    accuracy_lines,
    behind_label,
    contamination_label,
    duration_label,
    error_label,
    history_table,
    run_lines,
    run_stage_tables,
    spread_label,
)
from stagecut.planner.report.text_table import print_table
from tests.runs import CONTAMINATED, DILATED, RUN


def _column(table, header):
    column = next(column for column in table.columns if str(column.header) == header)
    return [str(cell) for cell in column.cells]


@pytest.mark.parametrize(
    ("header", "cell"),
    [
        ("layers", "0-1"),
        ("devices", "a-0/0"),
        ("F predicted", "1 s"),
        ("F measured", "1.1 s"),
        ("F error", "+10.00 %"),
        ("B error", "-5.00 %"),
        ("busy", "60.00 %"),
        ("waits", "30.00 %"),
        ("rest", "10.00 %"),
        ("memory predicted", "4 GB"),
        ("memory measured", "-"),
        ("update", "500 ms / 250 ms"),
    ],
)
def test_stage_table_puts_measured_beside_predicted(header, cell):
    assert _column(run_stage_tables(RUN)[0], header) == [cell]


def test_narrower_tables_have_fewer_columns_and_keep_the_errors():
    tables = run_stage_tables(RUN)
    widths = [len(table.columns) for table in tables]
    assert widths == sorted(widths, reverse=True)
    assert all(_column(table, "F error") == ["+10.00 %"] for table in tables)
    assert _column(tables[1], "F") == ["1 s / 1.1 s"]


class _Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("width", [80, 120, 160, 240])
def test_stage_table_is_whole_on_terminals_of_every_width(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    table, *narrower = run_stage_tables(RUN)
    stream = _Terminal()
    print_table(table, *narrower, stream=stream)
    drawn = re.sub(r"\x1b\[\d*m", "", stream.getvalue())
    assert max(map(len, drawn.splitlines())) <= width
    for figure in ("0-1", "+10.00 %", "-5.00 %", "60.00 %", "30.00 %", "4 GB"):
        assert figure in drawn


def test_iteration_is_told_with_its_error_rates_and_losses():
    """8 s predicted, 10 s measured; one of the two measured steps is clean."""
    lines = dict(run_lines(RUN))
    assert lines["iteration time"] == "predicted 8 s, measured 10 s, error +25.00 %"
    assert lines["steps"] == "2 after 1 warm-up step, 1 clean"
    assert lines["spread"] == "10 s to 10 s"
    assert (lines["samples per second"], lines["tokens per second"]) == ("0.4", "3.2")
    assert lines["loss"] == "3 in the first step, 1.5 in the last"
    assert lines["check"].startswith("passed: ")


def test_what_is_unknown_is_left_out():
    bare = replace(RUN, check=None, sequence_length=None)
    assert {"check", "tokens per second"} & dict(run_lines(bare)).keys() == set()


def test_a_failed_check_is_loud():
    failed = replace(RUN, check=replace(RUN.check, loss_difference=0.5, passed=False))
    assert dict(run_lines(failed))["check"].startswith("FAILED: loss differs by 0.5")


def test_contamination_is_told_plainly():
    """The worst counted step lost 30 %."""
    assert contamination_label(RUN) == ""
    assert contamination_label(CONTAMINATED).startswith("contaminated: no step was clean")
    assert "30.00 % of a step" in contamination_label(CONTAMINATED)


def test_history_has_a_row_per_run():
    table = history_table([RUN, CONTAMINATED, DILATED])
    assert _column(table, "plan") == ["abababab"] * 3
    assert _column(table, "mode") == ["real", "real", "dilated"]
    assert _column(table, "error") == ["+25.00 %", "+25.00 %", "+1.00 %"]
    assert _column(table, "contaminated") == ["", "contaminated", ""]


def test_accuracy_is_a_line_per_mode():
    lines = dict(accuracy_lines(accuracy([RUN, DILATED])))
    assert lines["real runs"] == "median error 25.00 %, worst 25.00 % over 1 uncontaminated run"
    assert "1.00 %" in lines["dilated runs"]


def test_unknown_errors_are_dashes():
    assert error_label(None) == "-"
    assert spread_label(None) == "no error known"


def test_lines_of_a_dilated_run_say_how_long_it_really_took():
    """8.08 s at a scale of 0.5."""
    lines = dict(run_lines(DILATED))
    assert lines["time scale"].startswith("0.5: an iteration took 4.0 s here")
    assert lines["late"].endswith("0.75 % of a step")
    assert "late" not in dict(run_lines(RUN))


@pytest.mark.parametrize(
    ("measured_s", "late_share", "behind"),
    [(8.08, 0.75, False), (10.0, 0.04, False), (10.0, 0.06, True), (800.0, 0.25, True)],
)
def test_a_machine_that_fell_behind_is_told_of(measured_s, late_share, behind):
    """A fifth of 10 s is beyond the 8 s predicted, a quarter of which is 5 % of a step; up to 5 % nothing is said."""
    late = replace(DILATED, measured_s=measured_s, dilation=replace(DILATED.dilation, late_share=late_share))
    assert bool(behind_label(late)) is behind
    assert not behind_label(replace(late, dilation=None))


@pytest.mark.parametrize(
    ("seconds", "label"),
    [
        (0.25, "250 ms"),
        (9.6, "9.6 s"),
        (44.6, "45 s"),
        (119.7, "2 min 0 s"),
        (125.0, "2 min 5 s"),
        (4800.0, "1 h 20 min"),
    ],
)
def test_seconds_that_somebody_waits_are_told_in_minutes_and_hours(seconds, label):
    assert duration_label(seconds) == label
