"""Job files."""

import dataclasses

import pytest

from stagecut.planner.core.job import Job, Optimizer, Recompute, standard_optimizer
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.files.job import job_of, read_job


def read(text, **options):
    return job_of(parse_document(text, file="f"), **options)


def test_defaults_are_those_of_the_core():
    assert read("schema: 1\nglobal_batch: 8\n") == Job(
        global_batch=8, optimizer=standard_optimizer("adamw", Precision.FP16)
    )


def test_precision_left_out_is_that_of_the_model():
    """The bytes per parameter of a named optimizer follow the precision: 4 + 4 + 8 for AdamW in fp32."""
    job = read("schema: 1\nglobal_batch: 8\n", default_precision=Precision.FP32)
    assert (job.precision, job.optimizer.total_bytes) == (Precision.FP32, 16.0)


def test_everything_stated_is_read(tmp_path):
    path = tmp_path / "job.json"
    path.write_text(
        '{"schema": 1, "global_batch": 12, "precision": "bf16", "micro_batches": [3], "schedules": ["gpipe"],\n'
        '"recompute": "never", "replicas": [1, 3], "tensor_parallel": [2], "pipelines": [1, 4], "zero1": true,\n'
        '"chunks": [3], "slice": "auto", "action_overhead_s": 0.001,'
        '"optimizer": {"name": "lion", "weight_bytes": 2, "gradient_bytes": 2, "state_bytes": 8}}'
    )
    assert read_job(path) == Job(
        global_batch=12,
        optimizer=Optimizer(name="lion", weight_bytes=2.0, gradient_bytes=2.0, state_bytes=8.0),
        precision=Precision.BF16,
        micro_batches=(3,),
        schedules=(Schedule.GPIPE,),
        recompute=Recompute.NEVER,
        replicas=(1, 3),
        tensor_parallel=(2,),
        pipelines=(1, 4),
        zero1=True,
        chunks=(3,),
        slice="auto",
        action_overhead_s=0.001,
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("micro_batches: [3, 5]", "3: micro_batches: none of the micro-batch sizes 3, 5 divides the global batch 8"),
        ("micro_batches: [2, 2]", "3: micro_batches[1]: micro-batch size 2 appears twice, first on line 3"),
        ("micro_batches: []", "3: micro_batches: must be a non-empty list, got an empty list"),
        ("micro_batches: [0]", "3: micro_batches[0]: must be a whole number from 1 to 1000000000, got 0"),
        ("tensor_parallel: [1, 6]", "3: tensor_parallel[1]: must be a power of two, got 6"),
        ("tensor_parallel: [2, 2]", "3: tensor_parallel[1]: tensor-parallel degree 2 appears twice, first on line 3"),
        ("pipelines: [3, 3]", "3: pipelines[1]: number of pipelines 3 appears twice, first on line 3"),
        ("zero1: 1", "3: zero1: must be true or false, got 1"),
        ("chunks: []", "3: chunks: must be a non-empty list, got an empty list"),
        (
            "slice: always",
            "3: slice: must be 'auto' or 'never' or a whole number from 0 to 1000000000, got 'always'",
        ),
        (
            "slice: -1",
            "3: slice: must be 'auto' or 'never' or a whole number from 0 to 1000000000, got -1",
        ),
        ("action_overhead_s: -1", "3: action_overhead_s: must be a number from 0 to 1e+30, got -1"),
        ("replicas: 2", "3: replicas: must be a non-empty list, got 2"),
        ("schedules: [1f1b, 1f1b]", "3: schedules[1]: schedule '1f1b' appears twice, first on line 3"),
        (
            "schedules: [gpip]",
            "3: schedules[0]: must be 'gpipe' or '1f1b' or 'eager-1f1b' or 'interleaved', got 'gpip', "
            "did you mean 'gpipe'?",
        ),
        ("recompute: no", "3: recompute: must be 'auto' or 'never' or 'always', got 'no'"),
        (
            "optimizer: adam",
            "3: optimizer: must be 'adamw' or 'sgd' or a mapping, got 'adam', did you mean 'adamw'?",
        ),
        (
            "optimizer: {name: a, weight_bytes: 1, gradient_bytes: 1, state_byte: 1, state_bytes: 1}",
            "3: optimizer.state_byte: unknown key, did you mean 'state_bytes'?",
        ),
    ],
)
def test_fault_is_told_with_its_line(complaints_of, line, complaint):
    assert complaints_of(job_of, f"schema: 1\nglobal_batch: 8\n{line}\n") == [complaint]


def test_batch_that_no_default_micro_batch_divides_cannot_be():
    """Size 1 divides every batch."""
    assert 1 in {field.name: field.default for field in dataclasses.fields(Job)}["micro_batches"]
    assert read("schema: 1\nglobal_batch: 7\n").global_batch == 7


@pytest.mark.parametrize("value", ["0", "-1", "4.0", "'8'", "true", ".inf", "1e10", "99999999999999999999"])
def test_global_batch_must_be_a_count(complaints_of, value):
    (complaint,) = complaints_of(job_of, f"schema: 1\nglobal_batch: {value}\n")
    assert complaint == f"2: global_batch: must be a whole number from 1 to 1000000000, got {value}"
