"""Correction factors for people."""

from rich.table import Table

from stagecut.planner.cost.calibration import Calibration
from stagecut.planner.report.run_tables import Lines, spread_label
from stagecut.planner.report.text_table import add_row, text_table


def factor_table(calibration: Calibration) -> Table:
    """One row per device type and kind of layer."""
    table = text_table("device type", "kind", right=("forward", "backward"))
    for factor in calibration.factors:
        add_row(table, factor.device_type, factor.kind, f"x {factor.forward:.3f}", f"x {factor.backward:.3f}")
    return table


def calibration_lines(calibration: Calibration) -> Lines:
    """How far stage times are off before and after."""
    return (
        ("runs", str(calibration.num_runs)),
        ("stage times before", spread_label(calibration.before)),
        ("stage times after", spread_label(calibration.after)),
    )
