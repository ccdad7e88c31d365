"""Sharded plans that cannot run are refused before anything starts."""

from dataclasses import replace

import pytest
from torch.nn import functional

from stagecut.executor.execution_plan import ExecutionPlan, Training
from stagecut.executor.manual_plan import plan_of
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.operators.strategy import LayerStrategy, StageSharding, Strategy
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.simulator.action_lists import Action, Op
from tests.executor.sharding.sharded_models import MODELS, plan_file, sharded

GPT = MODELS["gpt"]
NUM_LAYERS = 4


def divided(*splits: str) -> LayerStrategy:
    """One operator after another on one axis."""
    return LayerStrategy(operators=tuple(Strategy(splits=(split,)) for split in splits))


SAMPLES = (divided("sample", "sample"), divided(*["sample"] * 5), divided(*["sample"] * 5), divided(*["sample"] * 3))


def plan_with(*layers: LayerStrategy, micro_batch: int = 4, replicas: int = 1) -> Plan:
    """One stage on two devices a replica."""
    plan = plan_of((0, NUM_LAYERS), micro_batch=micro_batch, tensor_parallel=(2,), replicas=(replicas,))
    return sharded(plan, {0: StageSharding(mesh=(2,), layers=layers)})


def bound(plan: Plan, **options: object) -> ExecutionPlan:
    return ExecutionPlan.of(plan_file(plan, GPT.profile), GPT.modules(), Training(**options))


def test_samples_that_the_devices_do_not_divide_are_refused() -> None:
    """A replica of two devices forwards 3 of 6 samples."""
    with pytest.raises(BadInputError, match=r"stage 0: its devices divide .* into 2 parts, but replica 0 forwards 3"):
        bound(plan_with(*SAMPLES, micro_batch=6, replicas=2))


def test_a_loss_of_ones_own_is_not_divided_along_the_vocabulary() -> None:
    """A function says nothing of what it sums over; samples are dimension 0 of everything."""
    head = divided("sample", "vocabulary", "vocabulary")
    with pytest.raises(BadInputError, match="along samples only, not along vocabulary"):
        bound(plan_with(*SAMPLES[:3], head), loss_fn=functional.cross_entropy)
    bound(plan_with(*SAMPLES), loss_fn=functional.cross_entropy)


def test_a_layer_that_runs_as_a_whole_is_divided_along_samples_only() -> None:
    chain = GPT.modules()
    whole = replace(chain, layers=tuple(replace(layer, operators=None) for layer in chain.layers))
    plan = plan_with(SAMPLES[0], divided("token", "head", "head", "head", "token"), *SAMPLES[2:])
    with pytest.raises(BadInputError, match=r"layer 'block0.attention': runs as a whole"):
        ExecutionPlan.of(plan_file(plan, GPT.profile), whole, Training())


def test_the_number_of_operators_must_be_that_of_the_layer() -> None:
    plan = plan_with(*SAMPLES[:3], divided("sample"))
    with pytest.raises(BadInputError, match="layer 'head': has 3 operators, but the plan divides 1"):
        bound(plan)


def test_split_backwards_of_sharded_stages_are_refused() -> None:
    lists = [[Action(op, 0, 0, 4) for op in (Op.FORWARD, Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT)]]
    plan = replace(plan_with(*SAMPLES), num_microbatches=1)
    with pytest.raises(BadInputError, match="backwards of a sharded stage cannot be split"):
        ExecutionPlan.of(plan_file(plan, GPT.profile), GPT.modules(), Training(), actions=lists)


def test_tied_stages_of_one_device_group_are_not_sharded() -> None:
    """Embedding and head of GPT are tied; interleaved, the same two devices have both."""
    plan = plan_of((0, 2, NUM_LAYERS), schedule=Schedule.INTERLEAVED, micro_batch=4, tensor_parallel=(2,), chunks=2)
    plan = sharded(plan, {0: StageSharding(mesh=(2,), layers=SAMPLES[:2])})
    with pytest.raises(BadInputError, match="stages 0 and 1 are on the same devices and share tied weights"):
        ExecutionPlan.of(plan, GPT.modules(), Training())


def test_zero1_over_replicas_is_refused() -> None:
    """Optimizer state is stored in parts by the strategies instead."""
    file = plan_file(plan_with(*SAMPLES), GPT.profile)
    job = replace(file.problem.job, zero1=True)
    with pytest.raises(BadInputError, match="zero1 must be off for plans with sharded stages"):
        ExecutionPlan.of(replace(file, problem=replace(file.problem, job=job)), GPT.modules(), Training())
