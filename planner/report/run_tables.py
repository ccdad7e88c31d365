"""Runs for people: measured beside predicted, stage by stage and run by run."""

from collections.abc import Sequence

from rich.table import Table

from stagecut.planner.core.run_record import (
    MAX_MEMORY_SLOWDOWN,
    MAX_RUN_QUEUE_SHARE,
    DilationRecord,
    ErrorSpread,
    RunMode,
    RunRecord,
    StageFigures,
    StageRecord,
    relative_error,
)
from stagecut.planner.report.labels import UNKNOWN, bytes_label, device_label, percent_label, run_label, seconds_label
from stagecut.planner.report.text_table import add_row, text_table

Row = dict[str, str]
"""Cells by their column."""
Lines = tuple[tuple[str, str], ...]
"""Names with their values."""

TEXT = frozenset({"stage", "layers", "devices"})
"""Columns aligned to the left; the others are numbers."""
WIDE = (
    *("stage", "layers", "devices"),
    *("F predicted", "F measured", "F error", "B predicted", "B measured", "B error"),
    *("busy", "waits", "rest", "sync", "update", "memory predicted", "memory measured"),
)
MEDIUM = ("stage", "layers", "devices", "F", "F error", "B", "B error", "busy", "waits", "rest", "memory")
NARROW = ("stage", "layers", "F error", "B error", "busy", "waits", "memory")
HASH_DIGITS = 8
"""Enough to tell plan files apart."""


def run_stage_tables(run: RunRecord) -> tuple[Table, ...]:
    """One row per stage: predicted, measured and the error of its times and memory; shares of the iteration.

    Returns
    -------
    The table with everything first, then the same in fewer and fewer columns. Pairs of figures are
    predicted / measured.
    """
    rows = [_stage_row(index, stage, run.measured_s) for index, stage in enumerate(run.stages)]
    return tuple(_table(rows, columns) for columns in (WIDE, MEDIUM, NARROW))


def run_lines(run: RunRecord) -> Lines:
    """The iteration as a whole: predicted, measured, error, rates, loss, and whether a check passed."""
    counted = [run.steps[index] for index in run.counted_steps]
    clean = sum(step.clean for step in counted)
    measured = len(run.steps) - run.warmup
    longest = max(step.seconds for step in counted)
    shortest = min(step.seconds for step in counted)
    lines = [
        ("iteration time", f"{_times(run.predicted_s, run.measured_s)}, error {error_label(run.error)}"),
        ("steps", f"{measured} after {run.warmup} of warm-up, {clean} clean"),
        ("spread", f"{seconds_label(shortest)} to {seconds_label(longest)}"),
        ("samples per second", f"{run.samples_per_s:.4g}"),
        *([] if run.tokens_per_s is None else [("tokens per second", f"{run.tokens_per_s:.4g}")]),
        ("loss", f"{_loss(run.steps[0].loss)} in the first step, {_loss(run.steps[-1].loss)} in the last"),
        *([] if run.check is None else [("check", check_label(run))]),
        *([] if run.dilation is None else _dilation_lines(run, run.dilation)),
    ]
    return tuple(lines)


def behind_label(run: RunRecord) -> str:
    """A sentence where the machine did not keep up with a dilated run, else empty."""
    if run.dilation is None or not run.fell_behind:
        return ""
    larger = "a larger one" if run.dilation.stand_ins else "a larger one, or leave out --real-layers and --layers"
    return (
        f"this machine fell behind: actions began or ended late for up to {percent_label(run.dilation.late_share)} of "
        "a step, because other ranks, or other programs, had its processors. The error tells nothing about the plan: "
        f"close other programs, or set --time-scale, here {run.dilation.time_scale:g}, to {larger}"
    )


def duration_label(seconds: float) -> str:
    """Seconds that somebody waits, for example `9.6 s`, `45 s`, `2 min 5 s` or `1 h 20 min`."""
    if seconds < 1:
        return seconds_label(seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, odd_minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {odd_minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def contamination_label(run: RunRecord) -> str:
    """A sentence where no step was clean, else empty."""
    if not run.contaminated:
        return ""
    steps = [run.steps[index] for index in run.counted_steps]
    share, slowdown = max(step.run_queue_share for step in steps), max(step.memory_slowdown for step in steps)
    return (
        f"contaminated: no step was clean; ranks waited for a processor for up to {percent_label(share)} of a step, "
        f"{percent_label(MAX_RUN_QUEUE_SHARE)} is the limit, and memory took up to {slowdown:.2f} times as long as "
        f"at its best, {MAX_MEMORY_SLOWDOWN} is the limit. The measured times tell nothing"
    )


def check_label(run: RunRecord) -> str:
    """How far a step is from the same step of a single process."""
    if run.check is None:
        return UNKNOWN
    check = run.check
    verdict = "passed" if check.passed else "FAILED"
    differences = f"loss differs by {check.loss_difference:.2g}, gradients by {check.largest_gradient_difference:.2g}"
    return f"{verdict}: {differences} at most, {check.tolerance:.2g} allowed"


def history_table(runs: Sequence[RunRecord]) -> Table:
    """One row per run, in the order given."""
    numbers = ("predicted", "measured", "error")
    table = text_table("when", "plan", "model", "cluster", "mode", right=numbers, last=("contaminated",))
    for run in runs:
        add_row(
            table,
            run.started,
            run.plan_hash[:HASH_DIGITS],
            run.model,
            run.cluster,
            str(run.mode),
            seconds_label(run.predicted_s),
            seconds_label(run.measured_s),
            error_label(run.error),
            "contaminated" if run.contaminated else "",
        )
    return table


def accuracy_lines(spreads: Sequence[tuple[RunMode, ErrorSpread]]) -> Lines:
    """How good predictions of iteration times were, for each mode."""
    return tuple(
        (f"{mode} runs", f"{spread_label(spread)} over {spread.count} that are not contaminated")
        for mode, spread in spreads
    )


def spread_label(spread: ErrorSpread | None) -> str:
    """Median and worst error, for example `median error 1.20 %, worst 3.50 %`."""
    if spread is None:
        return "no error known"
    return f"median error {percent_label(spread.median)}, worst {percent_label(spread.worst)}"


def error_label(error: float | None) -> str:
    """An error in percent with its sign and two decimals, a dash where unknown."""
    return UNKNOWN if error is None else f"{100 * error:+.2f} %"


def _stage_row(index: int, stage: StageRecord, iteration_s: float) -> Row:
    predicted, measured = stage.predicted, stage.measured
    return {
        "stage": str(index),
        "layers": run_label(stage.start, stage.stop),
        "devices": device_label(stage.devices),
        **_time_cells("F", predicted.forward_s, measured.forward_s),
        **_time_cells("B", predicted.backward_s, measured.backward_s),
        "busy": percent_label(stage.busy_s / iteration_s),
        "waits": percent_label(stage.wait_s / iteration_s),
        "rest": percent_label(stage.idle_s / iteration_s),
        "sync": _pair(seconds_label(predicted.sync_s), seconds_label(measured.sync_s)),
        "update": _pair(seconds_label(predicted.update_s), seconds_label(measured.update_s)),
        **_memory_cells(predicted, measured),
    }


def _time_cells(name: str, predicted_s: float, measured_s: float) -> Row:
    predicted, measured = seconds_label(predicted_s), seconds_label(measured_s)
    error = error_label(relative_error(predicted_s, measured_s))
    return {
        f"{name} predicted": predicted,
        f"{name} measured": measured,
        f"{name} error": error,
        name: _pair(predicted, measured),
    }


def _memory_cells(predicted: StageFigures, measured: StageFigures) -> Row:
    sizes = [
        UNKNOWN if figures.memory_bytes is None else bytes_label(figures.memory_bytes)
        for figures in (predicted, measured)
    ]
    return {"memory predicted": sizes[0], "memory measured": sizes[1], "memory": _pair(*sizes)}


def _pair(predicted: str, measured: str) -> str:
    return f"{predicted} / {measured}"


def _times(predicted_s: float, measured_s: float) -> str:
    return f"predicted {seconds_label(predicted_s)}, measured {seconds_label(measured_s)}"


def _dilation_lines(run: RunRecord, dilation: DilationRecord) -> Lines:
    here = duration_label(dilation.time_scale * run.measured_s)
    return (
        ("time scale", f"{dilation.time_scale:g}: an iteration took {here} here, all times above are divided by it"),
        ("late", f"actions began or ended late for up to {percent_label(dilation.late_share)} of a step"),
    )


def _loss(loss: float | None) -> str:
    return "no number" if loss is None else f"{loss:.6g}"


def _table(rows: Sequence[Row], columns: Sequence[str]) -> Table:
    texts = [name for name in columns if name in TEXT]
    numbers = [name for name in columns if name not in TEXT]
    table = text_table(*texts, right=tuple(numbers))
    for row in rows:
        add_row(table, *(row[name] for name in columns))
    return table
