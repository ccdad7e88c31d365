"""Saves checkpoints and resumes from them under any plan: other stages, replicas, pipelines, tensor parallelism.

torch.distributed.checkpoint writes each tensor once, under its global name, and distributes the parts that the ranks
of another plan need. What torch would read as a pickle is read without running anything that it names.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from stagecut.executor.checkpoint.checksums import FileSum
from stagecut.executor.checkpoint.collective import (
    check_files,
    chosen,
    finish,
    gathered,
    merged,
    on_first_rank,
    whole_or_not_at_all,
)
from stagecut.executor.checkpoint.contents import (
    OptimizerStates,
    install_settings,
    model_tensors,
    saved_settings,
    saved_states,
    saved_tensors,
)
from stagecut.executor.checkpoint.folder import (
    partial_place_of,
    place_of,
    prepare,
)
from stagecut.executor.checkpoint.manifest import Manifest, Shape
from stagecut.executor.checkpoint.store import (
    check_values,
    disk_errors,
    read_metadata,
    read_tensors,
    read_values,
    write_tensors,
)
from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.build import SEED_STRIDE
from stagecut.executor.play.optimizers import local_optimizer
from stagecut.executor.play.stage import StageModule
from stagecut.planner.core.messages.checks import require_count
from stagecut.planner.core.messages.errors import BadInputError, OutputError
from stagecut.planner.io.files.plan_file import installed_versions

K = TypeVar("K")
V = TypeVar("V")


def save(pipeline: Pipeline, folder: str | Path, *, extra: Mapping[str, Any] | None = None, keep: int = 2) -> Path:
    """Write parameters, buffers and optimizer state; a collective.

    The checkpoint is written under a temporary name and renamed once complete, so a crash leaves earlier ones intact;
    the next call removes what it left behind.

    Parameters
    ----------
    folder
        Holds all checkpoints of the run and is visible to all ranks; created if missing.
    extra
        What else to save, the same on all ranks, such as the state of a learning-rate scheduler or of a random
        generator: tensors, numbers, text, and lists, tuples and dictionaries of them.
    keep
        How many checkpoints to keep, including this one.

    Returns
    -------
    Path
        Path of the checkpoint: `folder/step-000123` after 123 training steps.

    Raises
    ------
    OutputError
        If the checkpoint cannot be written.
    BadInputError
        If `extra` holds anything else.
    """
    _require_processes(pipeline)
    require_count("checkpoint", "keep", keep)
    check_values(extra or {}, "extra")
    folder = Path(folder)
    place, partial = place_of(folder, pipeline.num_steps), partial_place_of(folder, pipeline.num_steps)
    pipeline.transport.barrier()
    manifest, values = _manifest(pipeline), {**_gathered_values(pipeline), "extra": dict(extra or {})}
    with disk_errors(place, OutputError, "cannot be written", advice="earlier checkpoints are intact"):
        on_first_rank(pipeline, folder, lambda: prepare(folder))
        with whole_or_not_at_all(pipeline, partial):
            files = merged(gathered(write_tensors(saved_tensors(pipeline), partial), classes=(FileSum,)))
            summed = replace(manifest, files=files)
            on_first_rank(pipeline, partial, lambda: finish(partial, place, values, summed, keep=keep))
    return place


def restore(pipeline: Pipeline, folder: str | Path) -> dict[str, Any]:
    """Resume from a checkpoint, under the same plan or another; a collective.

    The optimizer's settings, such as the learning rate, are restored too. Random numbers drawn from torch's
    generator, such as dropout masks, are not repeated.

    Parameters
    ----------
    folder
        A checkpoint, or a folder of checkpoints, of which the newest is used.

    Returns
    -------
    dict
        What :func:`save` was given as `extra`.

    Raises
    ------
    BadInputError
        If there is none, it cannot be read, a file has been damaged, or its layers, shapes or optimizer differ: the
        message names the first difference.
    """
    _require_processes(pipeline)
    place = Path(cast(str, pipeline.transport.broadcast(str(chosen(Path(folder))), 0)))
    manifest = Manifest.read(place)
    manifest.check_fits(_manifest(pipeline), place)
    with disk_errors(place, BadInputError, "cannot be read", advice="restore another checkpoint"):
        check_files(pipeline, place, manifest)
        values, metadata = read_values(place), read_metadata(place)
        states = OptimizerStates(pipeline, metadata)
        read_tensors(model_tensors(pipeline) | states.tensors, place, metadata)
    states.install(values["states"])
    names: dict[Tensor, str] = {own: name for name, own in pipeline.named_parameters().items()}
    install_settings(pipeline.optimizer, names, values["settings"])
    pipeline.num_steps = manifest.num_steps
    torch.manual_seed((torch.initial_seed() + SEED_STRIDE**2 * manifest.num_steps) % 2**63)
    return cast(dict[str, Any], values["extra"])


def _require_processes(pipeline: Pipeline) -> None:
    num_ranks = dist.get_world_size() if dist.is_initialized() else 1
    if num_ranks != pipeline.layout.world_size:
        raise BadInputError(
            f"checkpoint: the threads of a Team cannot save checkpoints; start {pipeline.layout.world_size} processes, "
            f"for example with torchrun --nproc-per-node {pipeline.layout.world_size}, and use executor.load"
        )


def _gathered_values(pipeline: Pipeline) -> dict[str, Any]:
    own = {"states": saved_states(pipeline), "settings": saved_settings(pipeline)}
    check_values(own, "the optimizer's settings")
    every = gathered(own)
    return {key: merged(values[key] for values in every) for key in own}


def _manifest(pipeline: Pipeline) -> Manifest:
    own = {stage.index: (stage.names, _shapes(pipeline, stage)) for stage in pipeline.stages}
    stages = [stage for _, stage in sorted(merged(gathered(own)).items())]
    return Manifest(
        model=pipeline.execution.chain.name,
        layers=tuple(name for names, _ in stages for name in names),
        shapes={name: shape for _, shapes in stages for name, shape in shapes.items()},
        optimizer=type(local_optimizer(pipeline.optimizer)).__name__,
        num_steps=pipeline.num_steps,
        plan_hash=pipeline.execution.plan_hash,
        versions={**installed_versions(), "torch": torch.__version__},
    )


def _shapes(pipeline: Pipeline, stage: StageModule) -> dict[str, Shape]:
    """Shapes of whole tensors, even under tensor parallelism."""
    tensors = (*pipeline.parameters[stage.index].items(), *stage.global_buffers())
    return {name: tuple(tensor.shape) for name, tensor in tensors}
