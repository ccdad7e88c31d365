"""Gradients summed over everyone who holds the same weights, and their norm."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stagecut.executor.play.layout import Layout, Role
from stagecut.executor.play.tensor_parallel import divided_like, is_divided, local, whole
from stagecut.executor.play.transport import Transport

BUCKET_NUMBERS = 1 << 23
"""Numbers that are summed in one message: 32 MB in fp32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TiedWeights:
    """Weights held by several stages, one of them this rank's."""

    name: str
    stages: tuple[int, ...]


def groups_of(layout: Layout, tied: Iterable[TiedWeights]) -> list[tuple[int, ...]]:
    """Every set of ranks that does something together, in an order that all ranks agree on."""
    groups = [tuple(range(layout.world_size))]
    for role in layout.roles:
        groups += [layout.copies(role.stages[0], role.tensor_rank), layout.sharing_ranks(role)]
    groups += [holders(layout, weights) for weights in tied]
    return [group for group in dict.fromkeys(groups) if len(group) > 1]


def holders(layout: Layout, weights: TiedWeights) -> tuple[int, ...]:
    """Ranks that hold tied weights or a part of them, ascending."""
    return tuple(
        sorted(
            {
                rank
                for stage in weights.stages
                for tensor_rank in range(layout.num_sharing(stage))
                for rank in layout.copies(stage, tensor_rank)
            }
        )
    )


class GradientSync:
    """Sums and norms of one rank's gradients.

    Parameters
    ----------
    parameters
        Of each stage of the rank, by global name; tied copies under their owner's name.
    tied
        Weights that stages on different device groups have in common; all ranks know of all.
    """

    def __init__(
        self,
        *,
        layout: Layout,
        role: Role,
        transport: Transport,
        parameters: Mapping[int, Mapping[str, nn.Parameter]],
        tied: Sequence[TiedWeights],
        device: torch.device,
    ) -> None:
        self._layout, self._role, self._transport = layout, role, transport
        self._parameters, self._device = parameters, device
        self._tied = {weights.name: weights for weights in tied}

    def sum_stage(self, stage: int) -> None:
        """Sum the gradients of a stage over its replicas in all pipelines."""
        own = [parameter for name, parameter in self._parameters[stage].items() if name not in self._tied]
        ranks = self._layout.copies(stage, self._role.tensor_rank)
        gradients = [_gradient(parameter) for parameter in own if parameter.requires_grad]
        if len(ranks) > 1:
            for bucket in _buckets([local(gradient) for gradient in gradients]):
                self._sum(bucket, ranks)

    def sum_tied(self) -> None:
        """Sum the gradients of tied weights over all their owners.

        Each of the t devices that share a copy gives 1/t of the whole gradient, so that copies may be
        shared by different numbers of devices.
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
        """Euclidean norm of the gradient of the whole model; all ranks take part and get the same."""
        squares = torch.zeros((), dtype=torch.float64)
        for stage, own in self._parameters.items():
            for name, parameter in own.items():
                if parameter.grad is not None and self._speaks_for(name):
                    square = local(parameter.grad).detach().double().square().sum().cpu()
                    squares += square / self._copies(stage, parameter)
        total = squares.to(self._device)
        self._transport.sum(total, tuple(range(self._layout.world_size)))
        return float(total.sqrt())

    def scale(self, factor: float) -> None:
        """Multiply all gradients."""
        for own in self._parameters.values():
            for parameter in own.values():
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)

    def _speaks_for(self, name: str) -> bool:
        """Whether this rank's group is the one that counts: tied weights may be shared differently elsewhere."""
        weights = self._tied.get(name)
        return weights is None or weights.stages[0] % self._layout.num_groups == self._role.group

    def _copies(self, stage: int, parameter: nn.Parameter) -> int:
        """How many ranks of the device group hold the very same numbers."""
        sharing = 1 if is_divided(parameter) else self._layout.num_sharing(stage)
        return len(self._layout.copies(stage, 0)) * sharing

    def _sum(self, gradients: list[Tensor], ranks: tuple[int, ...]) -> None:
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self._transport.sum(flat, ranks)
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


def _gradient(parameter: nn.Parameter) -> Tensor:
    """The gradient, of zeros where no sample has reached the parameter."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _buckets(gradients: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Consecutive tensors of one type, as many as fit in a message."""
    bucket: list[Tensor] = []
    for gradient in gradients:
        full = sum(tensor.numel() for tensor in bucket) + gradient.numel() > BUCKET_NUMBERS
        if bucket and (full or bucket[0].dtype != gradient.dtype):
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket
