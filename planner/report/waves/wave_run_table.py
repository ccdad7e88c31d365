"""A run through waves for people: predicted beside measured, one row per virtual worker."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from stagecut.planner.core.virtual_workers.wave_run_record import WaveRunRecord, WaveWaits, WaveWorkerRecord
from stagecut.planner.report.labels import UNKNOWN, counted_label, device_label, seconds_label
from stagecut.planner.report.run_tables import Lines, check_label, error_label
from stagecut.planner.report.text_table import text_table
from stagecut.planner.report.waves.wave_verdict import rate_label

COLUMNS = ("samples/s", "own staleness", "global staleness", "gate", "pipeline", "link", "loss")
HEADING = (
    "samples/s, and waits of all stages per wave: predicted | measured; staleness in minibatches: seen | bound;\n"
    "loss: first wave -> last"
)


def wave_run_table(run: WaveRunRecord) -> Table:
    """Throughput, staleness, waits by cause and loss; the last row is that of all workers."""
    rows = [_row(number, worker) for number, worker in enumerate(run.workers)]
    return text_table([*rows, _total(run)], "worker", "devices", right=COLUMNS)


def _row(number: int, worker: WaveWorkerRecord) -> tuple[str, ...]:
    return (
        str(number),
        ", ".join(device_label((device,)) for device in worker.devices),
        _rates(worker.predicted_samples_per_s, worker.measured_samples_per_s),
        *_staleness([worker]),
        *_waits(worker.predicted_waits, worker.measured_waits),
        "" if worker.dropped is None else f"dropped after {counted_label(worker.dropped.num_waves, 'wave')}",
    )


def _total(run: WaveRunRecord) -> tuple[str, ...]:
    workers = run.workers
    return (
        "all",
        f"{sum(len(worker.devices) for worker in workers)} devices",
        _rates(run.predicted_samples_per_s, run.measured_samples_per_s),
        *_staleness(workers),
        *_waits(
            _sum([each.predicted_waits for each in workers]),
            _sum([each.measured_waits for each in workers if each.measured_waits is not None]),
        ),
        f"{_loss(run.losses[0])} -> {_loss(run.losses[-1])}",
    )


def _sum(waits: list[WaveWaits]) -> WaveWaits:
    return WaveWaits(
        gate_s=sum(each.gate_s for each in waits),
        pipeline_s=sum(each.pipeline_s for each in waits),
        link_s=sum(each.link_s for each in waits),
    )


def _staleness(workers: Sequence[WaveWorkerRecord]) -> tuple[str, str]:
    """The largest seen and bound, of a worker's own updates and of the others'."""
    own = [(each.local_staleness, each.local_bound) for each in workers]
    others = [(each.global_staleness, each.global_bound) for each in workers]
    return _largest(own), _largest(others)


def _largest(pairs: Sequence[tuple[int | None, ...]]) -> str:
    columns = ([value for value in column if value is not None] for column in zip(*pairs, strict=True))
    return " | ".join(str(max(column)) if column else UNKNOWN for column in columns)


def _rates(predicted: float, measured: float | None) -> str:
    return f"{predicted:.4g} | {UNKNOWN if measured is None else f'{measured:.4g}'}"


def _waits(predicted: WaveWaits, measured: WaveWaits | None) -> tuple[str, ...]:
    names = ("gate_s", "pipeline_s", "link_s")
    pairs = ((getattr(predicted, name), None if measured is None else getattr(measured, name)) for name in names)
    return tuple(f"{seconds_label(a)} | {seconds_label(b)}" for a, b in pairs)


def wave_run_lines(run: WaveRunRecord) -> Lines:
    """The run as a whole: when and where, predicted and measured throughput, and whether a check passed."""
    rates = f"predicted {rate_label(run.predicted_samples_per_s)}, measured {rate_label(run.measured_samples_per_s)}"
    return (
        ("started", run.started),
        ("on", f"{run.device}, {run.mode} run"),
        ("waves", f"{run.num_measured} after {counted_label(run.warmup, 'warm-up wave')}"),
        ("throughput", f"{rates}, error {error_label(run.error)}"),
        ("loss", f"{_loss(run.losses[0])} in the first wave, {_loss(run.losses[-1])} in the last"),
        *([] if run.check is None else [("check", check_label(run.check))]),
        *([] if run.time_scale is None else [("time scale", f"{run.time_scale:g}, by which all times are divided")]),
    )


def drop_labels(run: WaveRunRecord) -> Iterator[str]:
    """Which workers the run has gone on without, and why."""
    for number, worker in enumerate(run.workers):
        if worker.dropped is not None:
            waves = counted_label(worker.dropped.num_waves, "wave")
            yield f"worker {number} was dropped after {waves}: {worker.dropped.reason}"


def _loss(loss: float | None) -> str:
    return UNKNOWN if loss is None else f"{loss:.6g}"
