"""Gradients summed over all ranks that hold the same weights, and their norm."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from stagecut.executor.play.context import RankContext
from stagecut.executor.play.stage import Division
from stagecut.executor.play.tensor_parallel import divided_like, local, num_parts, whole
from stagecut.executor.schedule.rank_layout import RankLayout

BUCKET_NUMBERS = 1 << 23
"""Elements per all-reduce: 32 MB in fp32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TiedWeights:
    """Weights held by several stages on different device groups."""

    name: str
    stages: tuple[int, ...]


def groups_of(layout: RankLayout, tied: Iterable[TiedWeights]) -> list[tuple[int, ...]]:
    """Every set of ranks that takes part in a collective, in the same order on all ranks."""
    groups = [tuple(range(layout.world_size))]
    for role in layout.roles:
        groups += [layout.copies(role.stages[0], role.tensor_rank), layout.sharing_ranks(role)]
        groups += [line for stage in role.stages for line in layout.lines(role, stage)]
    groups += [holders(layout, weights) for weights in tied]
    return [group for group in dict.fromkeys(groups) if len(group) > 1]


def holders(layout: RankLayout, weights: TiedWeights) -> tuple[int, ...]:
    """Ranks that hold tied weights or a part of them, ascending."""
    shards = ((stage, part) for stage in weights.stages for part in range(layout.num_sharing(stage)))
    return tuple(sorted({rank for stage, part in shards for rank in layout.copies(stage, part)}))


class GradientSync:
    """Sums and norms of one rank's gradients.

    Parameters
    ----------
    parameters
        The parameters of each of the rank's stages, by global name; tied copies under their owner's name.
    tied
        Those of the whole model, whether or not this rank holds them.
    """

    def __init__(
        self,
        context: RankContext,
        parameters: Mapping[int, Mapping[str, nn.Parameter]],
        *,
        tied: Sequence[TiedWeights],
    ) -> None:
        self._context, self._parameters = context, parameters
        self._layout, self._role, self._transport = context.layout, context.role, context.transport
        self._tied = {weights.name: weights for weights in tied}

    def sum_stage(self, stage: int, division: Division | None = None) -> None:
        """Sum the gradients of a stage over its replicas in all pipelines, and over the devices that divide it."""
        if division is not None:
            division.sum_gradients(partial(self._sum_parts, stage))
            return
        own = [parameter for parameter in self._parameters[stage].values() if parameter.requires_grad]
        self._sum_parts(stage, {parameter: local(_gradient(parameter)) for parameter in own})

    def _sum_parts(self, stage: int, parts: Mapping[nn.Parameter, Tensor]) -> None:
        """Sum parts of gradients over all ranks with the same part, but for tied weights."""
        untied = [own for name, own in self._parameters[stage].items() if name not in self._tied]
        ranks = self._layout.copies(stage, self._role.tensor_rank)
        if len(ranks) > 1:
            for bucket in _buckets([parts[parameter] for parameter in untied if parameter in parts]):
                self._sum(bucket, ranks)

    def sum_tied(self) -> None:
        """Sum the gradients of tied weights over all ranks that hold them.

        Each of the t devices that share a copy contributes 1/t of the whole gradient, so that the copies may have
        different tensor-parallel degrees.
        """
        mine = {name: parameter for own in self._parameters.values() for name, parameter in own.items()}
        for name, weights in self._tied.items():
            if name not in mine:
                continue
            parameter = mine[name]
            degree = self._layout.tensor_parallel[self._role.group]
            total = whole(_gradient(parameter)) / degree
            self._transport.sum(total, holders(self._layout, weights))
            parameter.grad = divided_like(total, parameter)

    def norm(self) -> float:
        """Euclidean norm of the whole model's gradient; a collective, with the same result on all ranks."""
        squares = torch.zeros((), dtype=torch.float64)
        for stage, own in self._parameters.items():
            for name, parameter in own.items():
                if parameter.grad is not None and self._counts(name):
                    square = local(parameter.grad).detach().double().square().sum().cpu()
                    squares += square / self._copies(stage, parameter)
        total = squares.to(self._context.device)
        self._transport.sum(total, self._context.everyone)
        return float(total.sqrt())

    def scale(self, factor: float) -> None:
        """Multiply all gradients."""
        for own in self._parameters.values():
            for parameter in own.values():
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)

    def _counts(self, name: str) -> bool:
        """Whether a parameter counts on this device group: tied weights do so only on their first one."""
        weights = self._tied.get(name)
        return weights is None or weights.stages[0] % self._layout.num_groups == self._role.group

    def _copies(self, stage: int, parameter: nn.Parameter) -> int:
        """How many ranks hold exactly the same values."""
        return len(self._layout.copies(stage, 0)) * self._layout.num_sharing(stage) // num_parts(parameter)

    def _sum(self, gradients: list[Tensor], ranks: tuple[int, ...]) -> None:
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self._transport.sum(flat, ranks)
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


def _gradient(parameter: nn.Parameter) -> Tensor:
    """The gradient; zeros if no sample reached the parameter."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _buckets(gradients: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Consecutive tensors of one type, as many as fit in one all-reduce."""
    bucket: list[Tensor] = []
    for gradient in gradients:
        full = sum(tensor.numel() for tensor in bucket) + gradient.numel() > BUCKET_NUMBERS
        if bucket and (full or bucket[0].dtype != gradient.dtype):
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket
