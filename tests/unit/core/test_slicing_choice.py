"""What plans and jobs may say about halved micro-batches."""

from dataclasses import replace

import pytest

from stagecut.executor.manual_plan import plan_of
from stagecut.planner.core.job import AUTO, Job, standard_optimizer
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.schedule import Schedule, num_halved


def job(**choices):
    return Job(global_batch=8, optimizer=standard_optimizer("adamw", Precision.FP16), **choices)


@pytest.mark.parametrize(
    ("num_sliced", "options", "words"),
    [
        (-1, {}, "from 0 to the number of micro-batches, 4"),
        (5, {}, "from 0 to the number of micro-batches, 4"),
        (1, {"micro_batch": 3}, "0 with micro-batches of 3 under 1f1b"),
        (1, {"schedule": Schedule.INTERLEAVED}, "0 with micro-batches of 2 under interleaved"),
        (1, {"sizes": ((1, 2), (2, 2))}, r"0 if stages have different micro-batch sizes \[1, 2\]"),
    ],
)
def test_plans_that_cannot_be_sliced_are_refused(num_sliced, options, words):
    plan = plan_of((0, 1, 2), **options)
    with pytest.raises(BadInputError, match=words):
        replace(plan, num_sliced=num_sliced)


@pytest.mark.parametrize("choice", [-1, "often", 1.5, None])
def test_a_job_says_auto_or_a_number(choice):
    with pytest.raises(BadInputError, match="slice must be a whole number of at least 0, or 'auto'"):
        job(slice=choice)


def test_no_half_for_replicas_that_it_cannot_be_shared_by():
    """Micro-batches of 4: halves of 2 for one or two replicas, not for four; depth 3 halves at most three."""
    halved = [num_halved(5, depth=3, micro_batch=4, replicas=replicas) for replicas in (1, 2, 4)]
    assert halved == [3, 3, 0]


def test_a_stated_count_is_at_most_the_number_of_micro_batches():
    """The count is 0 where nothing can be halved; auto begins from 0."""
    stated = job(slice=9)
    assert stated.first_num_sliced(Schedule.GPIPE, 2, 4) == 4
    assert stated.first_num_sliced(Schedule.GPIPE, 1, 8) == 0
    assert stated.first_num_sliced(Schedule.INTERLEAVED, 2, 4) == 0
    assert job(slice=AUTO).first_num_sliced(Schedule.GPIPE, 2, 4) == 0
