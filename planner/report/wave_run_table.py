"""A run through waves for people: predicted beside measured, one row per virtual worker."""

from rich.table import Table

from stagecut.planner.core.wave_run_record import WaveRunRecord, WaveWaits, WaveWorkerRecord
from stagecut.planner.report.labels import UNKNOWN, device_label, seconds_label
from stagecut.planner.report.text_table import text_table

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
        f"{worker.local_staleness} | {worker.local_bound}",
        f"{worker.global_staleness} | {worker.global_bound}",
        *_waits(worker.predicted_waits, worker.measured_waits),
        "",
    )


def _total(run: WaveRunRecord) -> tuple[str, ...]:
    workers = run.workers
    own = max(worker.local_staleness for worker in workers), max(worker.local_bound for worker in workers)
    others = max(worker.global_staleness for worker in workers), max(worker.global_bound for worker in workers)
    return (
        "all",
        f"{sum(len(worker.devices) for worker in workers)} devices",
        _rates(run.predicted_samples_per_s, run.measured_samples_per_s),
        f"{own[0]} | {own[1]}",
        f"{others[0]} | {others[1]}",
        *_waits(_sum([each.predicted_waits for each in workers]), _sum([each.measured_waits for each in workers])),
        f"{_loss(run.losses[0])} -> {_loss(run.losses[-1])}",
    )


def _sum(waits: list[WaveWaits]) -> WaveWaits:
    return WaveWaits(
        gate_s=sum(each.gate_s for each in waits),
        pipeline_s=sum(each.pipeline_s for each in waits),
        link_s=sum(each.link_s for each in waits),
    )


def _rates(predicted: float, measured: float) -> str:
    return f"{predicted:.4g} | {measured:.4g}"


def _waits(predicted: WaveWaits, measured: WaveWaits) -> tuple[str, ...]:
    pairs = (
        (predicted.gate_s, measured.gate_s),
        (predicted.pipeline_s, measured.pipeline_s),
        (predicted.link_s, measured.link_s),
    )
    return tuple(f"{seconds_label(a)} | {seconds_label(b)}" for a, b in pairs)


def _loss(loss: float | None) -> str:
    return UNKNOWN if loss is None else f"{loss:.6g}"
