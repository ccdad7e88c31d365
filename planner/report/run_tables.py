"""Runs for people: measured beside predicted, stage by stage and run by run, and what calibration makes of them."""

from collections.abc import Sequence

from rich.table import Table

from stagecut.planner.core.run_record import (
    MAX_MEMORY_SLOWDOWN,
    MAX_RUN_QUEUE_SHARE,
    CheckRecord,
    DilationRecord,
    ErrorSpread,
    RunMode,
    RunRecord,
    StageRecord,
    relative_error,
)
from stagecut.planner.cost.calibration import Calibration
from stagecut.planner.report.labels import (
    UNKNOWN,
    bytes_label,
    counted_label,
    device_label,
    percent_label,
    run_label,
    seconds_label,
)
from stagecut.planner.report.text_table import chosen_columns, text_table

Row = dict[str, str]
"""Cells by their column."""
Lines = tuple[tuple[str, str], ...]
"""Names and values."""

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
    """One row per stage: its times and memory, predicted and measured, and its shares of the iteration.

    The table with everything comes first, then the same with fewer columns, where pairs are predicted / measured.
    """
    rows = [_stage_row(index, stage, run.measured_s) for index, stage in enumerate(run.stages)]
    return tuple(chosen_columns(rows, columns, text=TEXT) for columns in (WIDE, MEDIUM, NARROW))


def run_lines(run: RunRecord) -> Lines:
    """The iteration as a whole: predicted and measured time, rates, loss, and whether a check passed."""
    counted = [run.steps[index] for index in run.counted_steps]
    clean = sum(step.clean for step in counted)
    shortest, longest = min(step.seconds for step in counted), max(step.seconds for step in counted)
    times = f"predicted {seconds_label(run.predicted_s)}, measured {seconds_label(run.measured_s)}"
    return (
        ("iteration time", f"{times}, error {error_label(run.error)}"),
        ("steps", f"{len(run.steps) - run.warmup} after {counted_label(run.warmup, 'warm-up step')}, {clean} clean"),
        ("spread", f"{seconds_label(shortest)} to {seconds_label(longest)}"),
        ("samples per second", f"{run.samples_per_s:.4g}"),
        *([] if run.tokens_per_s is None else [("tokens per second", f"{run.tokens_per_s:.4g}")]),
        ("loss", f"{_loss(run.steps[0].loss)} in the first step, {_loss(run.steps[-1].loss)} in the last"),
        *([] if run.check is None else [("check", check_label(run.check))]),
        *([] if run.dilation is None else _dilation_lines(run, run.dilation)),
    )


def behind_label(run: RunRecord) -> str:
    """A sentence where the machine did not keep up with a dilated run, else empty."""
    if run.dilation is None or not run.fell_behind:
        return ""
    larger = "a larger value" + ("" if run.dilation.stand_ins else ", or leave out --real-layers and --layers")
    return (
        f"this machine fell behind: actions began or ended late for up to {percent_label(run.dilation.late_share)} of "
        "a step, because other ranks or other programs held its processors. The error says nothing about the plan: "
        f"close other programs, or set --time-scale (now {run.dilation.time_scale:g}) to {larger}"
    )


def duration_label(seconds: float) -> str:
    """A waiting time, for example `9.6 s`, `45 s`, `2 min 5 s` or `1 h 20 min`."""
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
        f"contaminated: no step was clean; ranks waited for a processor for up to {percent_label(share)} of a step "
        f"(limit {percent_label(MAX_RUN_QUEUE_SHARE)}), and memory took up to {slowdown:.2f} times as long as at "
        f"its best (limit {MAX_MEMORY_SLOWDOWN}). The measured times are meaningless"
    )


def check_label(check: CheckRecord) -> str:
    """How much a step differs from the same step of a single process."""
    verdict = "passed" if check.passed else "FAILED"
    differences = f"loss differs by {check.loss_difference:.2g}, gradients by {check.largest_gradient_difference:.2g}"
    return f"{verdict}: {differences}, at most {check.tolerance:.2g} allowed"


def history_table(runs: Sequence[RunRecord]) -> Table:
    """One row per run, in the order given."""
    rows = (
        (
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
        for run in runs
    )
    text, numbers = ("when", "plan", "model", "cluster", "mode"), ("predicted", "measured", "error")
    return text_table(rows, *text, right=numbers, last=("contaminated",))


def factor_table(calibration: Calibration) -> Table:
    """One row per device type and kind of layer."""
    rows = (
        (factor.device_type, factor.kind, f"x {factor.forward:.3f}", f"x {factor.backward:.3f}")
        for factor in calibration.factors
    )
    return text_table(rows, "device type", "kind", right=("forward", "backward"))


def calibration_lines(calibration: Calibration) -> Lines:
    """Errors of the stage times before and after calibration."""
    return (
        ("runs", str(calibration.num_runs)),
        ("stage times before", spread_label(calibration.before)),
        ("stage times after", spread_label(calibration.after)),
    )


def accuracy_lines(spreads: Sequence[tuple[RunMode, ErrorSpread]]) -> Lines:
    """How good predictions of the iteration time were, by mode."""
    return tuple(
        (f"{mode} runs", f"{spread_label(spread)} over {counted_label(spread.count, 'uncontaminated run')}")
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
    used = (predicted.memory_bytes, measured.memory_bytes)
    sizes = [UNKNOWN if num_bytes is None else bytes_label(num_bytes) for num_bytes in used]
    return {
        "stage": str(index),
        "layers": run_label(stage.start, stage.stop),
        "devices": device_label(stage.devices),
        **_time_cells("F", predicted.forward_s, measured.forward_s),
        **_time_cells("B", predicted.backward_s, measured.backward_s),
        "busy": percent_label(stage.busy_s / iteration_s),
        "waits": percent_label(stage.wait_s / iteration_s),
        "rest": percent_label(stage.idle_s / iteration_s),
        "sync": f"{seconds_label(predicted.sync_s)} / {seconds_label(measured.sync_s)}",
        "update": f"{seconds_label(predicted.update_s)} / {seconds_label(measured.update_s)}",
        "memory predicted": sizes[0],
        "memory measured": sizes[1],
        "memory": " / ".join(sizes),
    }


def _time_cells(name: str, predicted_s: float, measured_s: float) -> Row:
    predicted, measured = seconds_label(predicted_s), seconds_label(measured_s)
    error = error_label(relative_error(predicted_s, measured_s))
    return {
        f"{name} predicted": predicted,
        f"{name} measured": measured,
        f"{name} error": error,
        name: f"{predicted} / {measured}",
    }


def _dilation_lines(run: RunRecord, dilation: DilationRecord) -> Lines:
    here = duration_label(dilation.time_scale * run.measured_s)
    return (
        ("time scale", f"{dilation.time_scale:g}: an iteration took {here} here; all times above are divided by it"),
        ("late", f"actions began or ended late for up to {percent_label(dilation.late_share)} of a step"),
    )


def _loss(loss: float | None) -> str:
    return "not a number" if loss is None else f"{loss:.6g}"
