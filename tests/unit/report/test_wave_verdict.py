"""The answer about virtual workers in one sentence."""

from stagecut.planner.core.result import Status, StopCause
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.report.waves.wave_verdict import rate_label, wave_verdict


def result(status=Status.FEASIBLE, **values):
    return WaveResult(status=status, solver="waves-optimal", seconds=1.0, **values)


def test_rates_have_four_digits_and_a_unit():
    assert (rate_label(1234.56), rate_label(None)) == ("1235 samples/s", "-")


def test_gap_is_that_of_samples_per_second():
    """(100 - 96) / 100 = 4 %."""
    found = result(samples_per_s=96.0, bound_samples_per_s=100.0, stopped_by=StopCause.TIME)
    assert wave_verdict(found) == "96 samples/s, within 4 % of optimal when the time limit was reached"


def test_optimum_is_called_proven():
    proven = result(Status.OPTIMAL, samples_per_s=96.0, bound_samples_per_s=96.0)
    assert wave_verdict(proven) == "96 samples/s, proven optimal"


def test_interruption_is_told_first():
    stopped = result(Status.INTERRUPTED, samples_per_s=96.0, stopped_by=StopCause.USER)
    assert wave_verdict(stopped) == "interrupted: 96 samples/s, without a proof of how good that is"
    assert wave_verdict(result(Status.INTERRUPTED)).startswith("interrupted: no plan yet, and no proof")


def test_infeasible_says_why():
    assert wave_verdict(result(Status.INFEASIBLE, reason="4 GB short")) == "infeasible: 4 GB short"
