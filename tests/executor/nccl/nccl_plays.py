"""Plans played over emulated NCCL: layers with collectives and ties, and the pipelines of all ranks."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from stagecut.executor.execution_plan import ExecutionPlan, Training
from stagecut.executor.loading import assemble, transport_of
from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.context import RankContext
from stagecut.executor.play.pace import Pace
from stagecut.executor.play.reference import reference_step
from stagecut.executor.schedule.rank_layout import RankLayout
from stagecut.executor.transport.distributed import DistributedTransport
from stagecut.models.modules.module_chain import LayerModule, ModuleChain, Tie
from stagecut.planner.core.plan import Plan
from tests.executor.nccl.emulated_nccl import Fabric, Rank, current_rank

NUM_LAYERS, WIDTH = 6, 4
TOLERANCE = 1e-9
PROCESSOR = torch.device("cpu")

_one_at_a_time = threading.Lock()


class Shared(torch.autograd.Function):
    """A collective of the devices that share a replica, in the forward and in the backward: a mean of what is equal."""

    @staticmethod
    def forward(_, tensor: Tensor) -> Tensor:
        return mean_over_sharing(tensor)

    @staticmethod
    def backward(_, gradient: Tensor) -> Tensor:
        return mean_over_sharing(gradient)


def mean_over_sharing(tensor: Tensor) -> Tensor:
    rank, total = current_rank(), tensor.clone()
    if rank is None or len(rank.sharing) == 1:
        return total
    rank.all_reduce(total, group=rank.transport.groups[rank.sharing])
    return total / len(rank.sharing)


class Block(nn.Module):
    """Two states, one of which passes by; the last block has the weights of the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: Tensor, skipped: Tensor) -> tuple[Tensor, ...]:
        return hidden + torch.tanh(Shared.apply(self.inner(hidden))), skipped + hidden.mean(dim=1, keepdim=True)


class DividedSGD(torch.optim.SGD):
    """After its step the copies of a stage exchange what each has updated, as with ZeRO-1."""

    def step(self, closure: None = None) -> None:
        rank = current_rank()
        super().step(closure)
        if len(rank.copies) > 1:
            for _ in rank.copies:
                rank.all_reduce(torch.zeros(1), group=rank.transport.groups[rank.copies])


def chain() -> ModuleChain:
    return ModuleChain(
        name="blocks",
        layers=tuple(LayerModule(name=f"block{index}", build=Block) for index in range(NUM_LAYERS)),
        ties=(Tie(owner=(0, "inner.weight"), copy=(NUM_LAYERS - 1, "inner.weight")),),
        loss=lambda output, targets: nn.functional.mse_loss(output[0] + output[1], targets),
        batch=None,
    )


def batch_of(plan: Plan) -> tuple[tuple[Tensor, Tensor], Tensor]:
    samples = len(plan.pipelines) * plan.num_microbatches * plan.micro_batch
    generator = torch.Generator().manual_seed(samples)
    inputs, targets = (torch.randn(samples, WIDTH, generator=generator) for _ in range(2))
    return (inputs, torch.zeros(samples, 1)), targets


def execution_of(plan: Plan, **options: Any) -> ExecutionPlan:
    return ExecutionPlan.of(
        plan, chain(), Training(optimizer=partial(DividedSGD, lr=0.0), clip_norm=1e6, seed=5), copied=True, **options
    )


def built(rank: Rank, execution: ExecutionPlan, *, connects: bool = True) -> Pipeline:
    """One rank's pipeline over the transport that `stagecut.executor.load` gives it under NCCL."""
    transport = transport_of(execution, tagged=False, distributed=rank)
    if connects:
        transport.connect(PROCESSOR)
    return over(rank, execution, transport)


def over(rank: Rank, execution: ExecutionPlan, transport: DistributedTransport) -> Pipeline:
    role = execution.layout.roles[rank.number]
    rank.transport, rank.sharing = transport, execution.layout.sharing_ranks(role)
    rank.copies = execution.layout.copies(role.stages[0], role.tensor_rank)
    with _one_at_a_time:  # initial values are drawn from one generator
        return assemble(
            execution,
            RankContext(layout=execution.layout, role=role, transport=transport, device=PROCESSOR),
            groups=transport.groups,
            pace=Pace(),
            lock=rank.computing,
        )


def worst_difference(
    plan: Plan,
    *,
    build: Callable[[Rank, ExecutionPlan], Pipeline] = built,
    options: dict[str, Any] | None = None,
    **rules: Any,
) -> float:
    """Evaluate and take two steps in double precision; how far losses and gradients are from those of one process.

    Parameters
    ----------
    build
        Makes a rank's pipeline.
    options
        Of the execution plan.
    rules
        Of the :class:`Fabric`.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return _worst_difference(plan, build, options or {}, Fabric(RankLayout.of(plan).world_size, **rules))
    finally:
        torch.set_default_dtype(before)


def _worst_difference(
    plan: Plan, build: Callable[[Rank, ExecutionPlan], Pipeline], options: dict[str, Any], fabric: Fabric
) -> float:
    execution, batch = execution_of(plan, **options), batch_of(plan)
    expected = reference_step(chain(), batch, chain().loss, seed=5)

    def work(rank: Rank) -> float:
        pipeline = build(rank, execution)
        losses = [pipeline.evaluate(batch), pipeline.step(batch), pipeline.step(batch)]
        worst = [abs(loss - expected.loss) for loss in losses]
        for name, parameter in pipeline.named_parameters().items():
            worst.append(float((parameter.grad - expected.gradients[name]).abs().max()))
        return max(worst)

    return max(fabric.run(work))
