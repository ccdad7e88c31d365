"""Checkpoints that any plan for the same model can resume from: other stages, replicas, pipelines, tensor parallelism.

torch.distributed.checkpoint writes each tensor once, under its global name, and hands out the parts that the ranks
of another plan need. A checkpoint is a pickle to torch: restore those of people you trust only.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

from executor.checkpoints.folder import (
    MANIFEST,
    latest,
    partial_place_of,
    place_of,
    prepare,
    prune,
    publish,
    write_file,
)
from executor.checkpoints.manifest import Manifest, Shape
from executor.checkpoints.state import (
    StatesToCome,
    install_settings,
    model_tensors,
    saved_settings,
    saved_states,
    saved_tensors,
)
from executor.checkpoints.store import (
    check_values,
    complaints,
    read_metadata,
    read_tensors,
    read_values,
    write_tensors,
    write_values,
)
from executor.pipeline import Pipeline
from executor.play.build import SEED_STRIDE
from executor.play.optimizers import local_optimizer
from executor.play.stage import StageModule
from planner.core.checks import require_count
from planner.core.errors import BadInputError, OutputError
from planner.io.plan_file import installed_versions

__all__ = ["latest", "restore", "save"]

_Key = TypeVar("_Key")
_Answer = TypeVar("_Answer")


def save(pipeline: Pipeline, folder: str | Path, *, extra: Mapping[str, Any] | None = None, keep: int = 2) -> Path:
    """Write parameters, buffers and optimizer state; all ranks call it together.

    The checkpoint is written aside and gets its name when it is whole, so that a crash leaves the ones before
    as they were; the next call removes what it left behind.

    Parameters
    ----------
    folder
        Of all checkpoints of the run, which all ranks see; it is made if it is not there.
    extra
        What else to keep, the same on all ranks: the state of a learning-rate scheduler, of a random
        generator. Tensors, numbers, text, and lists, tuples and dictionaries of them.
    keep
        How many checkpoints to leave, this one included.

    Returns
    -------
    Path
        Of the checkpoint, `folder/step-000123` after 123 training steps.

    Raises
    ------
    OutputError
        If the disk refuses.
    BadInputError
        If `extra` holds something else than the above.
    """
    _require_processes(pipeline)
    require_count("checkpoint", "keep", keep)
    check_values(extra or {})
    folder = Path(folder)
    place, partial = place_of(folder, pipeline.num_steps), partial_place_of(folder, pipeline.num_steps)
    pipeline.transport.barrier()
    manifest, values = _manifest(pipeline), {**_gathered_values(pipeline), "extra": dict(extra or {})}
    with complaints(place, OutputError, "cannot be written", advice="the checkpoints before it are as they were"):
        _on_first_rank(pipeline, lambda: prepare(folder))
        write_tensors(saved_tensors(pipeline), partial)
        _on_first_rank(pipeline, lambda: _finish(partial, place, values, manifest, keep=keep))
    return place


def restore(pipeline: Pipeline, folder: str | Path) -> dict[str, Any]:
    """Go on from a checkpoint, under this plan or another one; all ranks call it together.

    The optimizer's settings become those of the checkpoint too, the learning rate among them. Random
    numbers drawn from torch's generator, such as dropout masks, are new ones.

    Parameters
    ----------
    folder
        A checkpoint, or a folder of them, of which the newest is taken.

    Returns
    -------
    dict
        What :func:`save` was given as `extra`.

    Raises
    ------
    BadInputError
        If there is none, it cannot be read, or it is of other layers, shapes or another optimizer: the
        message names the first difference.
    """
    _require_processes(pipeline)
    place = cast(Path, pipeline.transport.broadcast(_chosen(Path(folder)), 0))
    manifest = Manifest.read(place)
    manifest.check_fits(_manifest(pipeline), place)
    with complaints(place, BadInputError, "cannot be read", advice="restore another checkpoint"):
        values = read_values(place)
        states = StatesToCome(pipeline, read_metadata(place))
        read_tensors(model_tensors(pipeline) | states.tensors, place)
    states.install(values["states"])
    install_settings(pipeline, values["settings"])
    pipeline.num_steps = manifest.num_steps
    torch.manual_seed((torch.initial_seed() + SEED_STRIDE**2 * manifest.num_steps) % 2**63)
    return cast(dict[str, Any], values["extra"])


def _require_processes(pipeline: Pipeline) -> None:
    num_ranks = dist.get_world_size() if dist.is_initialized() else 1
    if num_ranks != pipeline.layout.world_size:
        raise BadInputError(
            f"checkpoint: ranks that are threads of a Team cannot write one; start {pipeline.layout.world_size} "
            f"processes, for example by torchrun --nproc-per-node {pipeline.layout.world_size}, and executor.load"
        )


def _chosen(folder: Path) -> Path:
    if (folder / MANIFEST).is_file():
        return folder
    place = latest(folder)
    if place is None:
        raise BadInputError(f"{folder}: holds no complete checkpoint; train from the start, or name another folder")
    return place


def _gathered_values(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "states": _merged(_gathered(saved_states(pipeline))),
        "settings": _merged(_gathered(saved_settings(pipeline))),
    }


def _manifest(pipeline: Pipeline) -> Manifest:
    own = {stage.index: (stage.names, _shapes(pipeline, stage)) for stage in pipeline.stages}
    stages = [stage for _, stage in sorted(_merged(_gathered(own)).items())]
    return Manifest(
        model=pipeline.model,
        layers=tuple(name for names, _ in stages for name in names),
        shapes={name: shape for _, shapes in stages for name, shape in shapes.items()},
        optimizer=type(local_optimizer(pipeline.optimizer)).__name__,
        num_steps=pipeline.num_steps,
        plan_hash=pipeline.plan_hash,
        versions={**installed_versions(), "torch": torch.__version__},
    )


def _shapes(pipeline: Pipeline, stage: StageModule) -> dict[str, Shape]:
    """Of whole tensors, also where devices share them."""
    tensors = (*pipeline.parameters[stage.index].items(), *stage.global_buffers())
    return {name: tuple(tensor.shape) for name, tensor in tensors}


def _finish(partial: Path, place: Path, values: dict[str, Any], manifest: Manifest, *, keep: int) -> None:
    write_values(values, partial)
    write_file(partial / MANIFEST, manifest.text().encode())
    publish(partial, place)
    prune(place.parent, keep=keep, up_to=manifest.num_steps)


def _gathered(own: _Answer) -> list[_Answer]:
    """What every rank has, by rank."""
    if not dist.is_initialized():
        return [own]
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    return every


def _merged(parts: Iterable[dict[_Key, _Answer]]) -> dict[_Key, _Answer]:
    return {key: value for part in parts for key, value in part.items()}


def _on_first_rank(pipeline: Pipeline, work: Callable[[], object]) -> None:
    """Let rank 0 do something while the others wait, and raise its fault on all of them."""
    fault = None
    if pipeline.role.rank == 0:
        try:
            work()
        except OSError as error:
            fault = error
    fault = cast(OSError | None, pipeline.transport.broadcast(fault, 0))
    if fault is not None:
        raise fault
