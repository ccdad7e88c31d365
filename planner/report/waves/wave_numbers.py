"""The numbers of virtual workers, by name."""

from stagecut.planner.analysis.wave_prediction import PlayedWaves
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.report.labels import bytes_label, percent_label
from stagecut.planner.report.throughput_lines import throughput_lines
from stagecut.planner.report.waves.wave_verdict import rate_label


def wave_numbers(played: PlayedWaves, result: WaveResult | None = None) -> list[tuple[str, str]]:
    """Throughput, staleness, traffic; with a result also what is proven about the throughput."""
    proven = []
    if result is not None:
        proven = [("upper bound", rate_label(result.bound_samples_per_s)), ("gap", percent_label(result.gap))]
    return [
        ("throughput", rate_label(played.timeline.samples_per_s)),
        *proven,
        *throughput_lines(played.throughput, num_devices=played.problem.cluster.num_devices)[1:],
        ("local staleness", _at_most(played.s_local)),
        ("global staleness", _at_most(played.s_global)),
        ("across hosts", f"{bytes_label(played.timeline.bytes_across_hosts)} per minibatch"),
    ]


def _at_most(count: int) -> str:
    return f"at most {count} minibatch{'' if count == 1 else 'es'}"
