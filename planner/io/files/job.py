"""Job files."""

from pathlib import Path
from typing import Annotated, Literal, TypeGuard

from pydantic import Field

from stagecut.planner.core.job import ACTION_OVERHEAD_S, Job, Optimizer, Recompute, SliceChoice, standard_optimizer
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.io.documents.canonical import Tree
from stagecut.planner.io.documents.complaints import Complaints
from stagecut.planner.io.documents.fields import Count, Entry, FileEntry, Index, Name, NonNegative
from stagecut.planner.io.documents.records import from_entry, tree_of
from stagecut.planner.io.documents.tree import Document, Node, complain_of_repetitions, read_document
from stagecut.planner.io.documents.validate import validate

StandardOptimizer = Literal["adamw", "sgd"]
SliceWord = Literal["auto", "never"]
ScheduleName = Annotated[Schedule, Field(strict=False)]
Counts = Annotated[list[Count], Field(min_length=1, max_length=1000)]

DEFAULT_MICRO_BATCHES: tuple[int, ...] = (1, 2, 4, 8)
DEFAULT_SCHEDULES: tuple[Schedule, ...] = (Schedule.ONE_F_ONE_B,)
DEFAULT_CHUNKS: tuple[int, ...] = (2,)
_DISTINCT = {
    "micro_batches": "micro-batch size",
    "schedules": "schedule",
    "replicas": "number of replicas",
    "tensor_parallel": "tensor-parallel degree",
    "pipelines": "number of pipelines",
    "chunks": "number of chunks",
}


class OptimizerEntry(Entry):
    """Memory per parameter, in bytes."""

    name: Name
    """Name, for display."""
    weight_bytes: NonNegative
    """Bytes per parameter for the weights."""
    gradient_bytes: NonNegative
    """Bytes per parameter for the gradients."""
    state_bytes: NonNegative
    """Bytes per parameter for the moments and, in mixed precision, the fp32 copy of the weights."""


class JobFile(FileEntry):
    """The training job, and the choices left to the planner."""

    global_batch: Count
    """Samples per iteration."""
    precision: Annotated[Precision, Field(strict=False)] | None = None
    """Number format used in training; that of the model profile if omitted."""
    optimizer: StandardOptimizer | OptimizerEntry = "adamw"
    """adamw, sgd (with momentum), or a mapping with bytes per parameter."""
    micro_batches: Counts = Field(default=list(DEFAULT_MICRO_BATCHES))
    """Allowed micro-batch sizes in samples; those that do not divide the global batch are ignored."""
    schedules: Annotated[list[ScheduleName], Field(min_length=1)] = Field(default=list(DEFAULT_SCHEDULES))
    """Allowed pipeline schedules."""
    recompute: Annotated[Recompute, Field(strict=False)] = Recompute.AUTO
    """auto (exactly the stages that would not fit in memory otherwise), never or always."""
    replicas: Counts | None = None
    """Allowed numbers of replicas of a stage; any number that divides the micro-batch if omitted."""
    tensor_parallel: Counts | None = None
    """Allowed tensor-parallel degrees, powers of two; any that fit in an island if omitted."""
    pipelines: Counts | None = None
    """Allowed numbers of identical pipelines; any that divide the cluster into equal shares if omitted."""
    zero1: bool = False
    """Whether the optimizer state is sharded over replicas and pipelines (ZeRO-1)."""
    chunks: Counts = Field(default=list(DEFAULT_CHUNKS))
    """Stages per device group under the interleaved schedule."""
    slice: SliceWord | Index = "never"
    """Warm-up micro-batches whose forwards are halved: never, a number, or auto (as many as pay off)."""
    action_overhead_s: NonNegative = ACTION_OVERHEAD_S
    """Overhead of half a forward in seconds, in addition to its computation: the cost of one more action."""


def read_job(path: str | Path, *, default_precision: Precision = Precision.FP16) -> Job:
    """Read a job; `default_precision`, that of the model profile, is used if the file states none.

    Raises
    ------
    BadInputError
        With every fault of the file.
    """
    return job_of(read_document(path), default_precision=default_precision)


def job_of(document: Document, *, default_precision: Precision = Precision.FP16) -> Job:
    """The job in a document; raises the same errors as :func:`read_job`."""
    entry = validate(document, JobFile, kind="job")
    check_job(document.root, document.complaints)
    return document.complaints.finish(entry, lambda fields: build_job(fields, default_precision=default_precision))


def check_job(root: Node, complaints: Complaints) -> None:
    """Check what a schema cannot express: unique values, powers of two, a micro-batch that divides the global batch."""
    for key, what in _DISTINCT.items():
        complain_of_repetitions(complaints, root.items(key), what)
    for node in root.items("tensor_parallel"):
        if _is_count(node.value) and node.value.bit_count() > 1:
            complaints.add(node.line, node.where, f"must be a power of two, got {node.text}")
    batch, listed = root.at("global_batch"), root.at("micro_batches")
    if batch is None or not _is_count(batch.value):
        return
    sizes = DEFAULT_MICRO_BATCHES if listed is None else tuple(node.value for node in listed.items())
    counts = [size for size in sizes if isinstance(size, int) and size > 0]
    if counts and all(batch.value % size for size in counts):
        place = batch if listed is None else listed
        shown = ", ".join(map(str, counts[:20]))
        complaints.add(
            place.line, place.where, f"none of the micro-batch sizes {shown} divides the global batch {batch.text}"
        )


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def build_job(entry: JobFile, *, default_precision: Precision) -> Job:
    """The core data of a checked entry."""
    precision = entry.precision or default_precision
    optimizer = (
        standard_optimizer(entry.optimizer, precision)
        if isinstance(entry.optimizer, str)
        else from_entry(Optimizer, entry.optimizer)
    )
    return from_entry(Job, entry, optimizer=optimizer, precision=precision, slice=slice_choice(entry.slice))


def slice_choice(word: SliceWord | int) -> SliceChoice:
    """The core's choice of slicing for a word or number in a file or an option."""
    return 0 if word == "never" else word


def to_tree(job: Job) -> Tree:
    """A job as a file holds it, with all defaults spelled out."""
    tree = {"schema": 1, **tree_of(job, omit_empty=True), "slice": job.slice or "never"}
    if job.slice == 0 and job.action_overhead_s == ACTION_OVERHEAD_S:
        # Older files do not have these keys, and their hashes must not change.
        del tree["slice"], tree["action_overhead_s"]
    return tree
