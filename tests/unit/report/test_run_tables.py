"""Tables of runs: the right cells. The run: tests/runs.py."""

import io
import re
from dataclasses import replace

import pytest

from planner.core.run_record import accuracy
from planner.report.run_tables import (
    accuracy_lines,
    contamination_label,
    error_label,
    history_table,
    run_lines,
    run_stage_tables,
    spread_label,
)
from planner.report.text_table import print_table
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
    print_table(table, stream, narrower=narrower)
    drawn = re.sub(r"\x1b\[\d*m", "", stream.getvalue())
    assert max(map(len, drawn.splitlines())) <= width
    for figure in ("0-1", "+10.00 %", "-5.00 %", "60.00 %", "30.00 %", "4 GB"):
        assert figure in drawn


def test_iteration_is_told_with_its_error_rates_and_losses():
    """8 s predicted, 10 s measured; one of the two measured steps is clean."""
    lines = dict(run_lines(RUN))
    assert lines["iteration time"] == "predicted 8 s, measured 10 s, error +25.00 %"
    assert lines["steps"] == "2 after 1 of warm-up, 1 clean"
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
    assert lines["real runs"] == "median error 25.00 %, worst 25.00 % over 1 that are not contaminated"
    assert "1.00 %" in lines["dilated runs"]


def test_unknown_errors_are_dashes():
    assert error_label(None) == "-"
    assert spread_label(None) == "no error known"
