"""The same gradients as torch.distributed.pipelining, on plans that it can express.

It knows one micro-batch size for all stages and one rank for each stage, so replicas are further
pipelines to it, whose gradients are averaged; weights are tied in none of these models.
"""

from dataclasses import replace
from functools import partial

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from stagecut import executor
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.play.build import build_layer
from stagecut.executor.play.stage import as_state
from stagecut.executor.schedule.rank_layout import RankLayout, Role
from stagecut.models.modules.module_chain import ModuleChain
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.schedule import Schedule
from tests.executor import pool
from tests.executor.tied_chain import TOLERANCE, batch_of, chain, num_ranks

SEED = 5


class Part(nn.Module):
    """Consecutive layers, called as torch calls a stage: with the tensors of its state."""

    def __init__(self, layers: dict[str, nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)

    def forward(self, *state: Tensor) -> Tensor | tuple[Tensor, ...]:
        for layer in self.layers.values():
            state = as_state(layer(*state))
        return state[0] if len(state) == 1 else state


def torch_gradients(plan: Plan, layers: ModuleChain) -> tuple[dict[str, Tensor], float | None]:
    """One step of torch's own schedule: gradients by global name, and the loss on ranks of the last stage."""
    layout = RankLayout.of(plan)
    role = layout.roles[dist.get_rank()]
    chain_group, copies = _chain_groups(layout)[role.pipeline, role.replica], _copy_groups(layout)[role.group]
    stages = [_stage(plan, layers, index, chain_group) for index in role.stages]
    inputs, targets = (_part(tensor, plan, role) for tensor in batch_of(plan))
    losses: list[Tensor] = []
    last = layout.num_stages - 1 in role.stages
    _schedule(plan, stages, layers.loss).step(
        *((inputs,) if 0 in role.stages else ()), target=targets if last else None, losses=losses, return_outputs=False
    )
    gradients = {}
    for stage in stages:
        for name, parameter in stage.submod.layers.named_parameters():
            gradients[name] = _mean(parameter.grad, copies)
    return gradients, float(_mean(torch.stack(losses).mean().detach(), copies)) if last else None


def _stage(plan: Plan, layers: ModuleChain, index: int, group: dist.ProcessGroup) -> PipelineStage:
    span = range(plan.stages[index].start, plan.stages[index].stop)
    part = Part({layers.layers[layer].name: build_layer(layers, layer, seed=SEED) for layer in span})
    return PipelineStage(part, index, len(plan.stages), torch.device("cpu"), group=group)


def _schedule(
    plan: Plan, stages: list[PipelineStage], loss: object
) -> ScheduleGPipe | Schedule1F1B | ScheduleInterleaved1F1B:
    """Micro-batches weigh the same, so that torch may divide the sum of their gradients by their number."""
    if plan.schedule is Schedule.INTERLEAVED:
        return ScheduleInterleaved1F1B(stages, plan.num_microbatches, loss_fn=loss)
    kind = ScheduleGPipe if plan.schedule is Schedule.GPIPE else Schedule1F1B
    return kind(stages[0], plan.num_microbatches, loss_fn=loss)


def _chain_groups(layout: RankLayout) -> dict[tuple[int, int], dist.ProcessGroup]:
    """One process group per pipeline and replica: the ranks of its stages, made on all ranks in one order."""
    return {
        (pipeline, replica): dist.new_group(
            [layout.rank_of(pipeline, group, replica=replica, tensor_rank=0) for group in range(layout.num_groups)]
        )
        for pipeline in range(layout.num_pipelines)
        for replica in range(layout.num_replicas(0))
    }


def _copy_groups(layout: RankLayout) -> list[dist.ProcessGroup]:
    """One process group per device group: the ranks that hold the same stages, made on all ranks in one order."""
    return [dist.new_group(list(layout.copies(group, 0))) for group in range(layout.num_groups)]


def _part(tensor: Tensor, plan: Plan, role: Role) -> Tensor:
    """A replica's samples: its pipeline's, and of each micro-batch an even part."""
    own = tensor.unflatten(0, (len(plan.pipelines), plan.num_microbatches, plan.stages[0].replicas, -1))
    return own[role.pipeline, :, role.replica].flatten(0, 1)


def _mean(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    dist.all_reduce(tensor, group=group)
    return tensor / group.size()


def worst_differences(plans: list[Plan]) -> list[float]:
    """Compute, on one rank and for each plan, the largest difference of a gradient or the loss."""
    torch.set_default_dtype(torch.float64)
    answers = []
    for plan in plans:
        layers = replace(chain(), ties=())
        pipeline = executor.load(plan, layers, optimizer=partial(torch.optim.SGD, lr=0.0), seed=SEED)
        loss = pipeline.step(batch_of(plan))
        expected, expected_loss = torch_gradients(plan, layers)
        own = pipeline.named_parameters()
        assert own.keys() == expected.keys()
        differences = [float((own[name].grad - expected[name]).abs().max()) for name in own]
        answers.append(max(*differences, 0.0 if expected_loss is None else abs(loss - expected_loss)))
    return answers


@pytest.mark.parametrize(
    "plans",
    [
        pytest.param([plan_of((0, 2, 6), schedule=Schedule.GPIPE), plan_of((0, 2, 6))], id="two stages"),
        pytest.param(
            [
                plan_of((0, 1, 4, 6), schedule=Schedule.GPIPE, num_microbatches=2),
                plan_of((0, 1, 4, 6), num_microbatches=5, recompute=(True, False, True)),
            ],
            id="three stages",
        ),
        pytest.param(
            [plan_of((0, 1, 3, 4, 6), schedule=Schedule.INTERLEAVED, chunks=2, num_microbatches=4)],
            id="two stages on each of two ranks",
        ),
        pytest.param(
            [plan_of(range(7), schedule=Schedule.INTERLEAVED, chunks=2, num_microbatches=6, micro_batch=1)],
            id="two stages on each of three ranks",
        ),
        pytest.param(
            [plan_of((0, 3, 6), replicas=(2, 2), micro_batch=4), plan_of((0, 3, 6), num_pipelines=2)],
            id="two replicas or pipelines of two stages",
        ),
    ],
)
def test_gradients_are_those_of_torch_pipelining(plans: list[Plan]) -> None:
    """Loss and every gradient, with the same initial weights and the same samples."""
    for answers in pool.run(worst_differences, plans, world_size=num_ranks(plans[0])):
        assert max(answers) < TOLERANCE, answers
