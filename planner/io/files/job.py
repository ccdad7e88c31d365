"""Job files."""

from pathlib import Path
from typing import Annotated, Literal, TypeGuard

from pydantic import Field

from stagecut.planner.core.job import ACTION_OVERHEAD_S, Job, Optimizer, WaveChoices, standard_optimizer
from stagecut.planner.core.operators.parallelism import Parallelism
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.io.documents.canonical import Tree
from stagecut.planner.io.documents.complaints import Complaints
from stagecut.planner.io.documents.fields import Count, Entry, FileEntry, Index
from stagecut.planner.io.documents.mirrors import mirrors
from stagecut.planner.io.documents.records import from_entry, tree_of
from stagecut.planner.io.documents.tree import Document, Node, complain_of_repetitions, read_document
from stagecut.planner.io.documents.validate import validate

StandardOptimizer = Literal["adamw", "sgd"]
SliceWord = Literal["auto", "never"]
AutoWord = Literal["auto"]
Kind = Annotated[Parallelism, Field(strict=False)]
ShardingWord = Literal["none", "auto"]
_DISTINCT = {
    "micro_batches": "micro-batch size",
    "schedules": "schedule",
    "replicas": "number of replicas",
    "tensor_parallel": "tensor-parallel degree",
    "sharding": "kind of parallelism",
    "pipelines": "number of pipelines",
    "chunks": "number of chunks",
}


@mirrors(Optimizer)
class OptimizerEntry(Entry):
    """Memory per parameter, in bytes."""


@mirrors(WaveChoices)
class WaveChoicesEntry(Entry):
    """Wave-synchronous parallel training, and what of it is left to the planner."""

    clock_distance: Index = 0
    in_flight: AutoWord | Count = "auto"
    num_workers: AutoWord | Count = "auto"


@mirrors(Job)
class JobFile(FileEntry):
    """The training job, and the choices left to the planner."""

    precision: Annotated[Precision, Field(strict=False)] | None = None
    """Number format used in training; that of the model profile if omitted."""
    optimizer: StandardOptimizer | OptimizerEntry = "adamw"
    """adamw, sgd (with momentum), or a mapping with bytes per parameter."""
    slice: SliceWord | Index = "never"
    """Warm-up micro-batches whose forwards are halved: never, a number, or auto (as many as pay off)."""
    sharding: ShardingWord | Annotated[list[Kind], Field(min_length=1)] = "none"
    """How the devices of a replica may divide each operator: by the listed kinds of parallelism, by all of them (auto),
    or by tensor parallelism alike in the whole stage (none)."""


def read_job(path: str | Path, *, default_precision: Precision = Precision.FP16) -> Job:
    """Read a job; raises a BadInputError with every fault of the file.

    `default_precision`, that of the model profile, is used if the file states none.
    """
    return job_of(read_document(path), default_precision=default_precision)


def job_of(document: Document, *, default_precision: Precision = Precision.FP16) -> Job:
    """The job in a document; raises the same errors as :func:`read_job`."""
    entry = validate(document, JobFile, kind="job")
    check_job(document.root, document.complaints)
    return document.complaints.finish(entry, lambda fields: build_job(fields, default_precision=default_precision))


def check_job(root: Node, complaints: Complaints) -> None:
    """Check what a schema cannot express: unique values, powers of two, sizes that make sense together."""
    for key, what in _DISTINCT.items():
        complain_of_repetitions(complaints, root.items(key), what)
    for node in root.items("tensor_parallel"):
        if _is_count(node.value) and node.value.bit_count() > 1:
            complaints.add(node.line, node.where, f"must be a power of two, got {node.text}")
    _check_sharding(root, complaints)
    batch, listed = root.at("global_batch"), root.at("micro_batches")
    waves = root.at("waves")
    if waves is not None and waves.value is not None and len(root.items("micro_batches")) != 1:
        where = (*root.where, "micro_batches")
        complaints.add((listed or waves).line, where, "must be a single size with waves: that of a minibatch")
    if batch is None or not _is_count(batch.value):
        return
    sizes = JobFile.model_fields["micro_batches"].default if listed is None else [node.value for node in listed.items()]
    counts = [size for size in sizes if isinstance(size, int) and size > 0]
    unequal = root.at("unequal")
    own = unequal is not None and unequal.value is True and min(counts, default=1) <= batch.value
    if counts and not own and all(batch.value % size for size in counts):
        place = batch if listed is None else listed
        shown = ", ".join(map(str, counts[:20]))
        complaints.add(
            place.line, place.where, f"none of the micro-batch sizes {shown} divides the global batch {batch.text}"
        )


def _check_sharding(root: Node, complaints: Complaints) -> None:
    """Operators are divided in synchronous training with equal, whole micro-batches only."""
    sharding = root.at("sharding")
    if sharding is None or sharding.value in ("none", None):
        return
    for key in ("unequal", "waves", "slice"):
        if (other := root.at(key)) is not None and other.value not in (False, None, 0, "never"):
            complaints.add(sharding.line, sharding.where, f"must be none with {key}")
    if any(node.value == Schedule.INTERLEAVED for node in root.items("schedules")):
        complaints.add(sharding.line, sharding.where, "must be none with the interleaved schedule")


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
    words = {"none": None, "auto": tuple(Parallelism)}
    return from_entry(
        Job,
        entry,
        optimizer=optimizer,
        precision=precision,
        slice=0 if entry.slice == "never" else entry.slice,
        sharding=words[entry.sharding] if isinstance(entry.sharding, str) else tuple(entry.sharding),
    )


def to_tree(job: Job) -> Tree:
    """A job as a file holds it, with all defaults spelled out."""
    tree = {"schema": 1, **tree_of(job, omit_empty=True), "slice": job.slice or "never"}
    # Older files do not have these keys, and their hashes must not change.
    if job.slice == 0 and job.action_overhead_s == ACTION_OVERHEAD_S:
        del tree["slice"], tree["action_overhead_s"]
    if not job.unequal:
        del tree["unequal"]
    return tree
