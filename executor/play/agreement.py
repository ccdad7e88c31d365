"""Checks that all ranks were given the same batch, by comparing fingerprints."""

import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from stagecut.executor.play.context import RankContext
from stagecut.executor.schedule.labels import ranks_label
from stagecut.planner.core.messages.errors import BadInputError

WIDTH = 1024
"""Columns of the table as which the contents of a tensor are read."""
_WORD_BYTES = 8


class _Description(NamedTuple):
    """What one rank brings to a step, in words."""

    call: str
    """`step` or `evaluate`."""
    inputs: str
    targets: str


def fingerprint(tensors: Iterable[Tensor]) -> int:
    """A number below 2^32 that distinguishes tensors of different contents, reading them once at memory speed.

    It is the checksum of the row and column sums of a table of 64-bit words: changing a word, or moving one, changes
    one of the sums.
    """
    checksum = 0
    for tensor in tensors:
        for part in _sums(tensor.detach()):
            checksum = zlib.crc32(part.cpu().numpy().tobytes(), checksum)
    return checksum


def _sums(tensor: Tensor) -> tuple[Tensor, ...]:
    data = tensor.contiguous().reshape(-1).view(torch.uint8)
    whole = data.numel() // (WIDTH * _WORD_BYTES) * WIDTH * _WORD_BYTES
    head = data[:whole]
    head = head.clone() if head.storage_offset() % _WORD_BYTES else head
    table = head.view(torch.int64).view(-1, WIDTH)
    return table.sum(dim=0), table.sum(dim=1), data[whole:]


def check_same_batch(call: str, batch: object, context: RankContext) -> None:
    """Refuse ranks that were given different batches, or that call different methods.

    Parameters
    ----------
    call
        What this rank is about to do with the batch.

    Raises
    ------
    BadInputError
        On all ranks; it names those that differ from most others, and in what.
    """
    if context.layout.world_size == 1:
        return
    own = _description(call, batch)
    tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor)]
    prints = context.all_gather((zlib.crc32(repr(own).encode()), fingerprint(tensors))).tolist()
    distinct = [value for index, value in enumerate(prints) if value not in prints[:index]]
    if len(distinct) == 1:
        return
    groups = [[rank for rank, value in enumerate(prints) if value == each] for each in distinct]
    received = [context.transport.broadcast(tuple(own), group[0]) for group in groups]
    raise BadInputError(_difference(groups, [_Description(*cast(tuple[str, str, str], each)) for each in received]))


def _description(call: str, batch: object) -> _Description:
    parts = batch if isinstance(batch, tuple | list) and len(batch) == 2 else (batch, None)
    return _Description(call, *(", ".join(map(_leaf, tree_leaves(part))) or "nothing" for part in parts))


def _leaf(leaf: object) -> str:
    if isinstance(leaf, Tensor):
        return f"{tuple(leaf.shape)} {str(leaf.dtype).removeprefix('torch.')}"
    return type(leaf).__name__


def _difference(groups: Sequence[list[int]], descriptions: Sequence[_Description]) -> str:
    """Groups of ranks, largest first, and what each has."""
    ordered = sorted(zip(groups, descriptions, strict=True), key=lambda pair: -len(pair[0]))
    if len({own.call for own in descriptions}) > 1:
        found = [f"{ranks_label(group)} called {own.call}" for group, own in ordered]
        return f"batch: all ranks must call the same method; {'; '.join(found)}"
    if len(set(descriptions)) > 1:
        found = [f"{ranks_label(group)}: inputs {own.inputs}, targets {own.targets}" for group, own in ordered]
    else:
        found = [f"{' and '.join(ranks_label(group) for group, _ in ordered)} have different values"]
    rule = "all ranks must be given the same global batch; each takes its own samples from it"
    return f"batch: {rule}; {'; '.join(found)} (check_batches=False skips this check)"
