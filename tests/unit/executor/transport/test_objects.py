"""What travels between ranks beside tensors: data, and nothing that a reader would run."""

import os
import pickle
import re
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from stagecut import executor
from stagecut.executor.measure.profile_links import RankMeasurement
from stagecut.executor.measure.timings import Timing
from stagecut.executor.play.trace import Span, StepTrace
from stagecut.executor.transport.objects import broadcast, decoded, encoded, gather, gather_everywhere
from stagecut.planner.core.precision import Precision
from tests.executor import pool

TREE = {"lr": 0.1, "betas": (0.9, float("inf")), "names": ["a", None, True], 3: torch.float64, "size": torch.Size([2])}


class Attack:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


class NotNamed(NamedTuple):
    number: int


def test_numbers_text_and_types_come_back_as_they_were():
    assert decoded(encoded(TREE)) == TREE
    assert torch.equal(decoded(encoded(torch.arange(3))), torch.arange(3))


def test_what_ranks_tell_of_a_step_comes_back_as_it_was():
    span = Span(0, "F", 1, 2, 3, 4.0, 5.0, 6.0)
    trace = StepTrace(rank=0, spans=(span,), start_s=0.0, end_s=1.0, loss=float("inf"), peak_memory_bytes=2.0)
    assert decoded(encoded([trace]), (StepTrace, Span)) == [trace]


def test_what_ranks_measure_comes_back_as_it_was():
    reading = Timing(seconds=(1.0,), run_queue_share=0.0)
    findings = RankMeasurement(
        host="0",
        host_name="h",
        device_type="cpu",
        device_title="CPU",
        memory_bytes=1,
        products={Precision.FP32: [reading]},
        updates=[reading],
        one_way={1: ((1.0, 2.0),)},
        streaming={},
        all_reduce={2: ()},
    )
    assert decoded(encoded(findings), (RankMeasurement, Timing, Precision)) == findings


def test_object_that_runs_something_when_it_is_read_is_refused(tmp_path):
    content = encoded(Attack(f"touch {tmp_path}/attacked"))
    with pytest.raises(pickle.UnpicklingError):
        decoded(content)
    assert list(tmp_path.iterdir()) == []


def test_class_that_the_reader_does_not_name_is_refused():
    assert decoded(encoded(NotNamed(1)), (NotNamed,)) == NotNamed(1)
    with pytest.raises(pickle.UnpicklingError):
        decoded(encoded(NotNamed(1)))


def exchanged():
    """Exchange values of a different length on each rank."""
    rank = torch.distributed.get_rank()
    own = ["x" * 10**rank, rank]
    return broadcast(own, 1), gather(own), gather_everywhere(own)


def test_ranks_get_what_the_others_have():
    every = [["x", 0], ["x" * 10, 1], ["x" * 100, 2]]
    assert pool.run(exchanged, world_size=3) == [(every[1], every if rank == 0 else None, every) for rank in range(3)]


def test_nothing_else_reads_objects_of_other_ranks():
    """The collectives of torch that take any object unpickle it; so does loading without `weights_only`."""
    doors = re.compile(r"_object(_list)?\(|pickle\.loads?\(|weights_only=False|send_object|recv_object")
    folder = Path(executor.__file__).parent
    found = [path.name for path in folder.rglob("*.py") if doors.search(path.read_text())]
    assert found == []
