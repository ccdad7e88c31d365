"""How often messages are sent."""

import pytest

pytest.importorskip("torch")

from stagecut.executor.measure.message_times import MOST_REPETITIONS, repetitions_of


def test_small_messages_are_repeated_more_often_up_to_a_limit():
    """64 MiB once is more than enough; 1 MiB fits 32 times into 32 MiB; 1 KiB thousands of times."""
    assert repetitions_of(64 * 2**20, 5) == 5
    assert repetitions_of(2**20, 5) == 32
    assert repetitions_of(1024, 5) == MOST_REPETITIONS
