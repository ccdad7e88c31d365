"""Makes all copies of the same weights start equal: compares fingerprints, and overwrites copies that differ."""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

import torch
from torch import Tensor, nn

from stagecut.executor.play.agreement import fingerprint
from stagecut.executor.play.context import RankContext
from stagecut.executor.play.gradients import TiedWeights, holders
from stagecut.executor.play.stage import StageModule
from stagecut.executor.play.tensor_parallel import divided_like, is_divided, local, whole
from stagecut.executor.schedule.labels import ranks_label
from stagecut.planner.core.messages.errors import BadInputError


class _Start(IntEnum):
    """How a rank's weights compare to the first copy."""

    EQUAL = 0
    OTHER_VALUES = 1
    OTHER_LAYERS = 2


@torch.no_grad()
def sync_initial_weights(
    stages: Sequence[StageModule],
    parameters: Mapping[str, nn.Parameter],
    *,
    tied: Iterable[TiedWeights],
    context: RankContext,
) -> tuple[int, ...]:
    """Overwrite every copy of a stage, and of tied weights, with the first one; a collective.

    Modules that were passed in ready-made differ if each rank initialised them for itself, and would stay different:
    only gradients are summed.

    Parameters
    ----------
    parameters
        This rank's, by global name; tied ones under their owner's name.

    Returns
    -------
    tuple of int
        Ranks whose values differed, the same on all ranks.

    Raises
    ------
    BadInputError
        If copies differ in names, shapes, types or in which parameters are trained.
    """
    if context.layout.world_size == 1:
        return ()
    of_stages = context.all_gather((_sync_stages(stages, context),)).flatten().tolist()
    _refuse_other_layers(of_stages)
    of_tied = context.all_gather((_sync_tied(parameters, tied, context),)).flatten().tolist()
    _refuse_other_layers(of_tied)
    return tuple(rank for rank, starts in enumerate(zip(of_stages, of_tied, strict=True)) if any(starts))


def _refuse_other_layers(starts: Sequence[int]) -> None:
    different = [rank for rank, start in enumerate(starts) if start == _Start.OTHER_LAYERS]
    if different:
        raise BadInputError(
            f"executor: parameters and buffers of {ranks_label(different)} differ from the first copy of the same "
            "layers in names, shapes, types or in which are trained; build the same layers on all ranks"
        )


def _sync_stages(stages: Sequence[StageModule], context: RankContext) -> _Start:
    """First the tensors replicated inside a tensor-parallel group, then each rank's part across all copies."""
    layout, role = context.layout, context.role
    held = {name: tensor for stage in stages for name, tensor in _tensors_of(stage)}
    undivided = {name: local(tensor) for name, tensor in held.items() if not is_divided(tensor)}
    sharing, first = layout.sharing_ranks(role), role.stages[0]
    copies = layout.copies(first, role.tensor_rank)
    source = layout.rank_of(0, first, replica=0, tensor_rank=role.tensor_rank)
    start = _sync(undivided, sharing, sharing[0], context)
    return max(start, _sync({name: local(tensor) for name, tensor in held.items()}, copies, source, context))


def _sync_tied(parameters: Mapping[str, nn.Parameter], tied: Iterable[TiedWeights], context: RankContext) -> _Start:
    found = _Start.EQUAL
    for weights in tied:
        if weights.name in parameters:
            parameter = parameters[weights.name]
            total = whole(parameter).detach()
            source = context.layout.rank_of(0, weights.stages[0], replica=0, tensor_rank=0)
            start = _sync({weights.name: total}, holders(context.layout, weights), source, context)
            if start is _Start.OTHER_VALUES:
                local(parameter).copy_(local(divided_like(total, parameter)))
            found = max(found, start)
    return found


def _tensors_of(stage: StageModule) -> Iterable[tuple[str, Tensor]]:
    """Parameters and all buffers, including those that checkpoints leave out."""
    for name, layer in zip(stage.names, stage.layers, strict=True):
        yield from ((f"{name}.{own}", parameter) for own, parameter in layer.named_parameters())
        yield from ((f"{name}.{own}", buffer) for own, buffer in layer.named_buffers())


def _sync(named: Mapping[str, Tensor], ranks: tuple[int, ...], source: int, context: RankContext) -> _Start:
    """Overwrite tensors with those of rank `source` if any of the ranks has others."""
    if len(ranks) == 1:
        return _Start.EQUAL
    rank = context.role.rank
    looks = [(name, tuple(t.shape), str(t.dtype), t.requires_grad) for name, t in named.items()]
    own = zlib.crc32(repr(looks).encode()), fingerprint(named.values())
    prints = dict(zip(ranks, map(tuple, context.all_gather(own, ranks).tolist()), strict=True))
    if len({look for look, _ in prints.values()}) > 1:
        return _Start.EQUAL if prints[rank][0] == prints[source][0] else _Start.OTHER_LAYERS
    if len(set(prints.values())) > 1:
        for tensor in named.values():
            _broadcast(tensor, ranks, source, context)
    return _Start.EQUAL if prints[rank] == prints[source] else _Start.OTHER_VALUES


def _broadcast(tensor: Tensor, ranks: tuple[int, ...], source: int, context: RankContext) -> None:
    """Replace a tensor by the source's: a sum of bytes that are zero elsewhere, which is exact for any type."""
    given = tensor.contiguous().reshape(-1).view(torch.uint8)
    data = given.clone() if context.role.rank == source else torch.zeros_like(given)
    context.transport.sum(data, ranks)
    tensor.copy_(data.view(tensor.dtype).view(tensor.shape))
