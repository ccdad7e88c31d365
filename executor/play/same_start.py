"""Copies of the same weights begin with the same numbers: compared by fingerprints, and replaced where they differ."""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum

import torch
from torch import Tensor, nn

from stagecut.executor.play.agreement import fingerprint, of_all_ranks, ranks_label
from stagecut.executor.play.gradients import TiedWeights, holders
from stagecut.executor.play.layout import Layout, Role
from stagecut.executor.play.stage import StageModule
from stagecut.executor.play.tensor_parallel import divided_like, is_divided, local, whole
from stagecut.executor.play.transport import Transport
from stagecut.planner.core.errors import BadInputError


class Start(IntEnum):
    """What a rank began with, beside the first copy."""

    SAME = 0
    OTHER_NUMBERS = 1
    OTHER_LAYERS = 2


Align = Callable[[Mapping[str, Tensor], tuple[int, ...], int], Start]
"""Of tensors by name, the ranks that hold them, and the one whose numbers count."""


@torch.no_grad()
def start_alike(
    stages: Sequence[StageModule],
    parameters: Mapping[str, nn.Parameter],
    *,
    tied: Iterable[TiedWeights],
    layout: Layout,
    role: Role,
    transport: Transport,
    device: torch.device,
) -> tuple[int, ...]:
    """Give every copy of a stage, and of tied weights, the numbers of the first one; all ranks take part.

    Modules that were given ready differ where each rank drew them for itself, and would stay different: only
    gradients are summed.

    Parameters
    ----------
    parameters
        Of the rank, by global name; tied ones under their owner's.

    Returns
    -------
    tuple of int
        Ranks that had others, the same on all ranks.

    Raises
    ------
    BadInputError
        If copies differ in names, shapes, types or in what is trained.
    """
    if layout.world_size == 1:
        return ()

    def align(named: Mapping[str, Tensor], ranks: tuple[int, ...], source: int) -> Start:
        if len(ranks) == 1:
            return Start.SAME
        return _align(named, ranks, source, rank=role.rank, transport=transport, device=device)

    def told(own: Start) -> list[Start]:
        everyone = tuple(range(layout.world_size))
        brought = of_all_ranks((own,), rank=role.rank, ranks=everyone, transport=transport, device=device)
        return [Start(start) for (start,) in brought]

    of_stages = told(_align_stages(stages, layout, role, align))
    _refuse_other_layers(of_stages)
    of_tied = told(_align_tied(parameters, tied, layout, align))
    _refuse_other_layers(of_tied)
    return tuple(rank for rank, starts in enumerate(zip(of_stages, of_tied, strict=True)) if any(starts))


def _refuse_other_layers(starts: Sequence[Start]) -> None:
    strange = [rank for rank, start in enumerate(starts) if start is Start.OTHER_LAYERS]
    if strange:
        raise BadInputError(
            f"executor: parameters and buffers of {ranks_label(strange)} differ from those of the first copy of the "
            "same layers in names, shapes, types or in what is trained; build the same layers on all ranks"
        )


def _align_stages(stages: Sequence[StageModule], layout: Layout, role: Role, align: Align) -> Start:
    """First what the devices that share a copy hold whole, then what each holds over all copies."""
    held = {name: tensor for stage in stages for name, tensor in _held_by(stage)}
    undivided = {name: local(tensor) for name, tensor in held.items() if not is_divided(tensor)}
    sharing, first = layout.sharing_ranks(role), role.stages[0]
    copies = layout.copies(first, role.tensor_rank)
    source = layout.rank_of(0, first, replica=0, tensor_rank=role.tensor_rank)
    start = align(undivided, sharing, sharing[0])
    return max(start, align({name: local(tensor) for name, tensor in held.items()}, copies, source))


def _align_tied(
    parameters: Mapping[str, nn.Parameter], tied: Iterable[TiedWeights], layout: Layout, align: Align
) -> Start:
    found = Start.SAME
    for weights in tied:
        if weights.name in parameters:
            parameter = parameters[weights.name]
            total, source = whole(parameter).detach(), layout.rank_of(0, weights.stages[0], replica=0, tensor_rank=0)
            start = align({weights.name: total}, holders(layout, weights), source)
            if start is Start.OTHER_NUMBERS:
                local(parameter).copy_(local(divided_like(total, parameter)))
            found = max(found, start)
    return found


def _held_by(stage: StageModule) -> Iterable[tuple[str, Tensor]]:
    """Parameters and all buffers, those included that no checkpoint holds."""
    for name, layer in zip(stage.names, stage.layers, strict=True):
        yield from ((f"{name}.{own}", parameter) for own, parameter in layer.named_parameters())
        yield from ((f"{name}.{own}", buffer) for own, buffer in layer.named_buffers())


def _align(
    named: Mapping[str, Tensor],
    ranks: tuple[int, ...],
    source: int,
    *,
    rank: int,
    transport: Transport,
    device: torch.device,
) -> Start:
    looks = [(name, tuple(t.shape), str(t.dtype), t.requires_grad) for name, t in named.items()]
    own = zlib.crc32(repr(looks).encode()), fingerprint(named.values())
    brought = dict(
        zip(ranks, of_all_ranks(own, rank=rank, ranks=ranks, transport=transport, device=device), strict=True)
    )
    if len({look for look, _ in brought.values()}) > 1:
        return Start.SAME if brought[rank][0] == brought[source][0] else Start.OTHER_LAYERS
    if len(set(brought.values())) == 1:
        return Start.SAME
    for tensor in named.values():
        _take_over(tensor, ranks, transport, is_source=rank == source)
    return Start.SAME if brought[rank] == brought[source] else Start.OTHER_NUMBERS


def _take_over(tensor: Tensor, ranks: tuple[int, ...], transport: Transport, *, is_source: bool) -> None:
    """Replace a tensor by the source's: a sum of bytes that are zero elsewhere, which is exact for any type."""
    given = tensor.contiguous().reshape(-1).view(torch.uint8)
    data = given.clone() if is_source else torch.zeros_like(given)
    transport.sum(data, ranks)
    tensor.copy_(data.view(tensor.dtype).view(tensor.shape))
