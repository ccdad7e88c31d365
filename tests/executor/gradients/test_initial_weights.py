"""Copies of the same weights begin alike, whatever each rank was given."""

import warnings
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from stagecut import executor
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.play.tensor_parallel import whole
from stagecut.models.modules.module_chain import ModuleChain
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.plan import Plan
from tests.executor import pool
from tests.executor.tied_chain import NUM_LAYERS, batch_of, chain

SGD = partial(torch.optim.SGD, lr=0.1)
NUM_STEPS = 3
PLANS = {
    "replicas": (plan_of((0, 2, 6), replicas=(1, 3), micro_batch=3, num_microbatches=2), {0: 0, 1: 1}),
    "shared devices": (plan_of((0, 2, 6), replicas=(2, 1), tensor_parallel=(1, 2), num_microbatches=2), {0: 0, 1: 2}),
    "two pipelines": (plan_of((0, 4, 6), replicas=(1, 1), num_pipelines=2, num_microbatches=2), {0: 0, 1: 1}),
}
"""Plans of four ranks; for every stage the rank whose weights count, the first that holds it."""


def ready_chain(seed: int) -> ModuleChain:
    """The chain with modules that are ready, drawn from one seed; a buffer that is drawn too."""
    torch.manual_seed(seed)
    plain = chain()
    modules = [layer.build() for layer in plain.layers]
    for module in modules:
        module.register_buffer("drawn", torch.rand(2), persistent=False)
    layers = tuple(replace(layer, build=lambda m=m: m) for layer, m in zip(plain.layers, modules, strict=True))
    return replace(plain, layers=layers)


def trained(plan: Plan) -> tuple[list[float], dict[str, torch.Tensor], list[str]]:
    """Train on one rank, whose modules were drawn from its own seed; return losses, weights, buffers and warnings."""
    torch.set_default_dtype(torch.float64)
    rank = torch.distributed.get_rank()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pipeline = executor.load(plan, ready_chain(seed=100 + rank), optimizer=SGD)
    told = [str(each.message) for each in caught if "started with" in str(each.message)]
    losses = [pipeline.step(batch_of(plan)) for _ in range(NUM_STEPS)]
    named = {name: whole(value).detach().cpu().numpy() for name, value in pipeline.named_parameters().items()}
    for stage in pipeline.stages:
        named |= {
            f"{name}.drawn": whole(dict(layer.named_buffers())["drawn"]).cpu().numpy()
            for name, layer in zip(stage.names, stage.layers, strict=True)
        }
    return losses, named, told


def trained_alone(plan: Plan, seeds: dict[int, int]) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Train in plain torch, with every stage drawn from its own seed."""
    stages = [ready_chain(seeds[index]) for index in range(len(plan.stages))]
    modules = [
        stages[next(i for i, stage in enumerate(plan.stages) if stage.start <= index < stage.stop)]
        .layers[index]
        .build()
        for index in range(NUM_LAYERS)
    ]
    modules[-1].tokens.weight = modules[0].tokens.weight
    named = {f"{layer.name}.{name}": value for layer, module in zip(chain().layers, modules, strict=True)
             for name, value in [*module.named_parameters(), *module.named_buffers()]}  # fmt: skip
    optimizer = SGD(nn.ModuleList(modules).parameters())
    tokens, targets = batch_of(plan)
    losses = []
    for _ in range(NUM_STEPS):
        state = (tokens,)
        for module in modules:
            state = module(*state)
            state = state if isinstance(state, tuple) else (state,)
        loss = chain().loss(state[0], targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.detach().cpu().numpy() for name, value in named.items()}


@pytest.mark.parametrize("name", PLANS)
def test_ready_modules_drawn_by_each_rank_train_as_the_first_copy_would(name: str) -> None:
    """Replicas, pipelines, devices that share a layer, tied weights, buffers: all of the first rank that holds them."""
    plan, sources = PLANS[name]
    answers = pool.run(trained, plan, world_size=4)
    torch.set_default_dtype(torch.float64)
    try:
        losses, expected = trained_alone(plan, {stage: 100 + rank for stage, rank in sources.items()})
    finally:
        torch.set_default_dtype(torch.float32)
    for own_losses, own, _ in answers:
        assert own_losses == pytest.approx(losses, abs=1e-9)
        for key, value in own.items():
            assert value == pytest.approx(expected[key], abs=1e-9), key
    (told,) = [each for _, _, own in answers for each in own]
    others = [rank for rank in range(4) if rank not in sources.values() or rank == sources[1]]
    assert told.startswith(f"ranks {', '.join(map(str, others[:-1]))} and {others[-1]} started with other weights")


def warned(plan: Plan) -> list[str]:
    """Return the warnings that one rank gives about weights that functions and seeds have made equal."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        executor.load(plan, chain(), optimizer=SGD, seed=3)
        executor.load(plan, ready_chain(seed=3), optimizer=SGD)
    return [str(each.message) for each in caught if "started with" in str(each.message)]


def test_nothing_is_said_where_all_ranks_begin_alike() -> None:
    assert pool.run(warned, PLANS["replicas"][0], world_size=4) == [[]] * 4


def refused(plan: Plan) -> str:
    """Return the message that one rank gives about layers that are wider on the last rank."""
    width = 5 if torch.distributed.get_rank() == 3 else 4
    try:
        executor.load(plan, [nn.Linear(3, width), nn.Linear(width, 3)], nn.functional.mse_loss)
    except BadInputError as fault:
        return str(fault)
    return ""


def test_copies_of_other_shapes_are_refused() -> None:
    """Rank 3 is a replica of the last stage, whose first is rank 1."""
    plan = plan_of((0, 1, 2), replicas=(1, 3), micro_batch=3)
    said = pool.run(refused, plan, world_size=4)
    assert all("parameters and buffers of rank 3 differ from the first copy" in each for each in said)
