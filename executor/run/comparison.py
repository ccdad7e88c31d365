"""A training step of a plan compared with the same step of a single process."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.batch import Batch
from stagecut.executor.play.reference import Reference, reference_step
from stagecut.executor.play.stage import StageModule
from stagecut.executor.play.tensor_parallel import whole
from stagecut.executor.ranks.world import World
from stagecut.executor.run.options import RunOptions, build_pipeline, build_team
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.run_record import CheckRecord, RunMode
from stagecut.planner.io.files.plan_file import PlanFile

TOLERANCE = 1e-9
"""Largest absolute difference of loss and gradients, in float64."""


def check_step(plan_file: PlanFile, options: RunOptions, world: World) -> CheckRecord | None:
    """Compare loss and gradients of one batch with a single process, in float64 and without dropout.

    Returns
    -------
    CheckRecord or None
        None on all ranks but the first, which computes the whole batch by itself.

    Raises
    ------
    BadInputError
        If the model has batch normalisation, whose statistics depend on the micro-batch.
    """
    plain = replace(options, autocast=None, mode=RunMode.REAL, check_finite=False)
    with double_precision():
        pipeline, batch = build_pipeline(plan_file, plain, world)
        refuse_batch_norm(pipeline.stages)
        loss = pipeline.step(batch)
        gathered = world.gather(_gradients(pipeline))
        if gathered is None:
            return None
        return _with_one_process(plan_file, options, batch, loss=loss, gathered=gathered, device=world.device)


def check_team(plan_file: PlanFile, options: RunOptions) -> CheckRecord:
    """The same for ranks that are threads of this process.

    Raises
    ------
    BadInputError
        See :func:`check_step`.
    """
    plain = replace(options, autocast=None, check_finite=False)
    with double_precision():
        team, batch = build_team(plan_file, plain, pace=None)
        for pipeline in team.pipelines:
            refuse_batch_norm(pipeline.stages)
        loss = team.step(batch)
        gathered = team.each(_gradients)
        return _with_one_process(plan_file, options, batch, loss=loss, gathered=gathered, device=team.device)


def _with_one_process(
    plan_file: PlanFile,
    options: RunOptions,
    batch: Batch,
    *,
    loss: float,
    gathered: Sequence[Mapping[str, Tensor]],
    device: torch.device,
) -> CheckRecord:
    chain = options.chain(plan_file)
    assert chain.loss is not None  # checked by `layers_of`
    reference = reference_step(chain, batch, chain.loss, seed=options.seed, device=device)
    found = {name: gradient for own in gathered for name, gradient in own.items()}
    return compare(reference, loss=loss, gradients=found)


def compare(reference: Reference, *, loss: float, gradients: Mapping[str, Tensor]) -> CheckRecord:
    """Differences from a single process; infinite if the two have different parameters."""
    largest = 0.0 if gradients.keys() == reference.gradients.keys() else math.inf
    for name, gradient in gradients.items():
        if name in reference.gradients:
            own = reference.gradients[name].cpu()
            largest = max(largest, float((gradient - own).abs().nan_to_num(math.inf, math.inf).max()))
    loss_difference = abs(loss - reference.loss) if math.isfinite(loss - reference.loss) else math.inf
    return CheckRecord(
        loss_difference=loss_difference,
        largest_gradient_difference=largest,
        tolerance=TOLERANCE,
        passed=max(loss_difference, largest) <= TOLERANCE,
    )


def _gradients(pipeline: Pipeline) -> dict[str, Tensor]:
    """Whole gradients of this rank, on the CPU; from the first replica only, as all have the same."""
    wholes = {
        name: whole(parameter.grad).cpu()
        for name, parameter in pipeline.named_parameters().items()
        if parameter.grad is not None
    }
    role = pipeline.role
    return wholes if role.pipeline == role.replica == role.tensor_rank == 0 else {}


def refuse_batch_norm(stages: Iterable[StageModule]) -> None:
    """Raise a BadInputError if a stage has batch normalisation."""
    for stage in stages:
        for name, layer in zip(stage.names, stage.layers, strict=True):
            if any(isinstance(module, _BatchNorm) for module in layer.modules()):
                raise BadInputError(
                    f"--check: layer {name!r} has batch normalisation, whose statistics depend on the micro-batch, so "
                    "no single process computes the same; omit --check, or run a model without it"
                )


@contextmanager
def double_precision() -> Iterator[None]:
    """Make new weights and samples float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
