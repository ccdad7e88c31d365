"""Loss and gradients of distributed plans are those of a single process."""

import random
from collections import defaultdict
from functools import partial

import pytest
import torch
from torch import nn

from stagecut import executor
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.play.reference import reference_step
from stagecut.executor.play.tensor_parallel import whole
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.simulator.action_lists import Action, Op, stage_actions
from tests.executor import pool
from tests.executor.plans import random_plan
from tests.executor.tied_chain import NUM_LAYERS, TOLERANCE, batch_of, chain, num_ranks


def worst_differences(cases: list[tuple[Plan, dict[str, object]]]) -> list[tuple[float, float, float]]:
    """Differences of the loss and the evaluated loss, and the largest of a gradient, on one rank for each plan."""
    torch.set_default_dtype(torch.float64)
    answers = []
    for plan, options in cases:
        batch = batch_of(plan)
        expected = reference_step(chain(), batch, chain().loss, seed=5)
        pipeline = executor.load(plan, chain(), optimizer=partial(torch.optim.SGD, lr=0.0), seed=5, **options)
        evaluated = pipeline.evaluate(batch)
        loss = pipeline.step(batch)
        worst = max(
            float((whole(parameter.grad).cpu() - expected.gradients[name]).abs().max())
            for name, parameter in pipeline.named_parameters().items()
        )
        answers.append((abs(loss - expected.loss), abs(evaluated - expected.loss), worst))
    return answers


def check(cases: list[tuple[Plan, dict[str, object]]]) -> None:
    """Run cases of equal numbers of ranks in one world each."""
    by_size = defaultdict(list)
    for plan, options in cases:
        by_size[num_ranks(plan)].append((plan, options))
    for world_size, own in sorted(by_size.items()):
        for answers in pool.run(worst_differences, own, world_size=world_size):
            for (plan, options), differences in zip(own, answers, strict=True):
                assert max(differences) < TOLERANCE, (plan, options, differences)


@pytest.mark.slow
def test_random_plans_have_the_gradients_of_a_single_process() -> None:
    """Stages, replicas, unequal sizes, recompute, tensor parallelism and pipelines in any combination."""
    draws = [random.Random(seed) for seed in range(4)]
    check([(random_plan(draw, num_layers=NUM_LAYERS, max_ranks=6), {}) for draw in draws for _ in range(10)])


def test_a_halved_warm_up_micro_batch_changes_nothing() -> None:
    """Two half forwards, one joint backward (AutoPipe-H)."""
    plan = plan_of((0, 2, 4, 6), micro_batch=4, num_microbatches=4, replicas=(1, 2, 1))
    halved = [stage_actions(stage, [2, 2, 4, 4, 4], [4, 4, 4, 4], depth=4 * (3 - stage)) for stage in range(3)]
    check([(plan, {"actions": halved})])


def test_unequal_shares_of_replicas_change_nothing() -> None:
    """Losses are sums over the global count, never means of unequal parts; a part may be empty."""
    plan = plan_of((0, 3, 6), micro_batch=3, num_microbatches=4, replicas=(2, 3))
    check([(plan, {"shares": ((1, 2), (3, 1, 1))})])


def test_split_backwards_change_nothing() -> None:
    """Zero bubble: gradients of inputs first, those of weights at the end."""
    plan = plan_of((0, 2, 4, 6), schedule=Schedule.GPIPE, num_microbatches=3)
    lists = []
    for stage in range(3):
        samples = [(2 * index, 2 * index + 2) for index in range(3)]
        ops = (Op.FORWARD, Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT)
        lists.append([Action(op, stage, lo, hi) for op in ops for lo, hi in samples])
    check([(plan, {"actions": lists})])


def test_losses_may_be_divided_by_a_count_of_targets() -> None:
    """A sum over tokens that are not padding, divided by their number in the global batch."""
    plan = plan_of((0, 3, 6), num_microbatches=3)
    check([(plan, {"loss_fn": summed, "count": num_tokens})])


def summed(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy summed over tokens."""
    return nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten(), reduction="sum")


def num_tokens(targets: torch.Tensor) -> float:
    """What the sum is divided by."""
    return float(targets.numel())
