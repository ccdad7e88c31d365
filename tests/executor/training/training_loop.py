"""A training loop as a user writes it, under any plan and in plain torch."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stagecut import executor
from stagecut.executor import checkpoint
from stagecut.executor.play.build import build_layer
from stagecut.executor.play.optimizers import local_states
from stagecut.executor.play.tensor_parallel import whole
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Server
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.model import Layer, ModelProfile
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.io.files.plan_file import PlanFile, provenance_of
from stagecut.planner.io.files.plan_statements import Certificate, Prediction, StagePrediction
from tests.executor.tied_chain import TOKENS, VOCABULARY, chain

SAMPLES = 8
CLIP_NORM = 0.3
NUM_STEPS = 6
"""Steps of the whole training."""
SEED = 5
ADAMW = partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1, betas=(0.8, 0.9))

Arrays = dict[str, NDArray[np.float64]]
"""Tensors by their names in a checkpoint, as they can be sent from process to process."""


def batch_of(step: int) -> tuple[Tensor, Tensor]:
    """The global batch of a step."""
    tokens = torch.randint(VOCABULARY, (SAMPLES, TOKENS), generator=torch.Generator().manual_seed(step))
    return tokens, tokens.flip(1)


def schedule(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    """A learning rate that falls from lr to 0 over the whole training, after one step of warm-up."""
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, total_iters=1)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, NUM_STEPS)
    return torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [1])


def plan_file(plan: Plan, *, zero1: bool) -> PlanFile:
    """A plan file for a cluster that has the devices of the plan."""
    kind = DeviceType(name="core", peak_flops_per_s=((Precision.FP32, 1.0),), memory_bytes=1.0)
    groups = [stage.devices for pipeline in plan.pipelines for stage in pipeline.stages]
    servers = tuple(
        Server(name=devices[0].rpartition("/")[0], islands=(Island(device_type="core", count=len(devices)),))
        for devices in groups
    )
    optimizer = standard_optimizer("adamw", Precision.FP32)
    problem = Problem(
        model=ModelProfile(
            name="tiny", layers=tuple(Layer(name=layer.name) for layer in chain().layers), precision=Precision.FP32
        ),
        cluster=Cluster(name="ranks", device_types=(kind,), servers=servers),
        job=Job(global_batch=SAMPLES, optimizer=optimizer, precision=Precision.FP32, zero1=zero1),
    )
    nothing = StagePrediction(
        forward_s=0, backward_s=0, transfer_s=0, sync_s=0, update_s=0, memory_bytes=0, limit_bytes=0
    )
    return PlanFile(
        problem=problem,
        plan=plan,
        predicted=Prediction(iteration_s=0.0, stages=(nothing,) * len(plan.stages)),
        certificate=Certificate(status=Status.FEASIBLE, solver="by hand", objective_s=0.0),
        provenance=provenance_of(problem, {}, seed=0),
    )


def train(
    plan: Plan | PlanFile, folder: Path, *, steps: int, restores: bool = False, saves: bool = False
) -> tuple[Arrays, Arrays, list[float]]:
    """Train one rank from where the newest checkpoint is, or from the start.

    Returns
    -------
    tuple
        What this rank has of parameters and optimizer states, tensors whole, before the first and after
        the last step; the losses.
    """
    torch.set_default_dtype(torch.float64)
    pipeline = executor.load(plan, chain(), optimizer=ADAMW, clip_norm=CLIP_NORM, seed=SEED)
    scheduler = schedule(pipeline.optimizer)
    if restores:
        scheduler.load_state_dict(checkpoint.restore(pipeline, folder)["scheduler"])
    before, losses = contents(pipeline), []
    for _ in range(steps):
        losses.append(pipeline.step(batch_of(pipeline.num_steps)))
        scheduler.step()
    if saves:
        checkpoint.save(pipeline, folder, extra={"scheduler": scheduler.state_dict()})
    return before, contents(pipeline), losses


def contents(pipeline: executor.Pipeline) -> Arrays:
    """Parameters and optimizer states of a rank, as checkpoints name them."""
    states = local_states(pipeline.optimizer)
    return {key: value for name, own in pipeline.named_parameters().items() for key, value in _named(name, own, states)}


def trained_alone(steps: int) -> tuple[Arrays, list[float]]:
    """The same training in plain torch, without a pipeline."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return _trained_alone(steps)
    finally:
        torch.set_default_dtype(before)


def _trained_alone(steps: int) -> tuple[Arrays, list[float]]:
    model, losses = chain(), []
    layers = [build_layer(model, index, seed=SEED) for index in range(len(model.layers))]
    layers[-1].tokens.weight = layers[0].tokens.weight
    parameters = {
        f"{layer.name}.{name}": parameter
        for layer, module in zip(model.layers, layers, strict=True)
        for name, parameter in module.named_parameters()
        if (layer.name, name) != ("head", "tokens.weight")
    }
    optimizer = ADAMW(parameters.values())
    scheduler = schedule(optimizer)
    for step in range(steps):
        state, targets = (batch_of(step)[0],), batch_of(step)[1]
        for layer in layers:
            state = layer(*state)
        loss = model.loss(state, targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters.values(), CLIP_NORM)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    named = (pair for name, own in parameters.items() for pair in _named(name, own, optimizer.state))
    return dict(named), losses


def _named(
    name: str, parameter: nn.Parameter, states: Mapping[Tensor, Mapping[str, Tensor]]
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    yield f"model.{name}", _copy(parameter)
    yield from ((f"optimizer.{name}.{key}", _copy(value)) for key, value in states.get(parameter, {}).items())


def _copy(tensor: Tensor) -> NDArray[np.float64]:
    return whole(tensor.detach()).cpu().numpy().copy()
