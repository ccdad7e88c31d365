"""What a record says of itself."""

from dataclasses import replace

import pytest

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.run_record import ErrorSpread, RunMode, accuracy, counted_steps, relative_error
from tests.runs import CONTAMINATED, DILATED, RUN, step


def test_error_is_against_the_prediction():
    """10 s where 8 s were predicted: a quarter more."""
    assert RUN.error == 0.25
    assert relative_error(8.0, 6.0) == -0.25


@pytest.mark.parametrize(("predicted", "measured"), [(None, 1.0), (1.0, None), (0.0, 1.0)])
def test_error_is_unknown_where_a_figure_is_or_nothing_was_predicted(predicted, measured):
    assert relative_error(predicted, measured) is None


def test_rates_follow_from_the_measured_time():
    """4 samples of 8 tokens in 10 s."""
    assert (RUN.samples_per_s, RUN.tokens_per_s) == (0.4, 3.2)
    assert replace(RUN, sequence_length=None).tokens_per_s is None


def test_only_clean_steps_after_the_warm_up_count():
    assert RUN.counted_steps == (1,)


def test_all_steps_after_the_warm_up_count_where_none_is_clean():
    assert CONTAMINATED.counted_steps == (1, 2)
    assert counted_steps((step(1.0), step(2.0)), warmup=0) == (0, 1)


def test_typical_step_is_nearest_to_the_measured_time():
    """Clean steps of 9, 10 and 14 s have the median 10 s."""
    run = replace(RUN, steps=(step(10.0), step(9.0), step(10.0), step(14.0)))
    assert run.typical_step == 2


def test_accuracy_is_by_mode_without_contaminated_runs():
    """Real errors 25 % and -25 %: median and worst 25 %; dilated 1 %."""
    faster = replace(RUN, measured_s=6.0)
    (real, of_real), (dilated, of_dilated) = accuracy([RUN, faster, CONTAMINATED, DILATED])
    assert (real, dilated) == (RunMode.REAL, RunMode.DILATED)
    assert of_real == ErrorSpread(count=2, median=0.25, worst=0.25)
    assert of_dilated.median == pytest.approx(0.01)


def test_accuracy_of_no_runs_is_nothing():
    assert accuracy([]) == accuracy([CONTAMINATED]) == ()
    assert ErrorSpread.of([]) is None


@pytest.mark.parametrize("change", [{"warmup": 3}, {"measured_s": 0.0}, {"stages": ()}, {"global_batch": 0}])
def test_records_that_contradict_themselves_are_refused(change):
    with pytest.raises(BadInputError, match=next(iter(change))):
        replace(RUN, **change)
