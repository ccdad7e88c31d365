"""What all ranks must have in common, compared by fingerprints."""

import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from stagecut.executor.play.transport import Transport
from stagecut.planner.core.errors import BadInputError

WIDTH = 1024
"""Columns of the table that the contents of a tensor are read as."""
_WORD_BYTES = 8


class Look(NamedTuple):
    """What one rank brings to a step, in words."""

    call: str
    """`step` or `evaluate`."""
    inputs: str
    targets: str


def fingerprint(tensors: Iterable[Tensor]) -> int:
    """A number below 2^32 that tells tensors of other contents apart, all of them read once at the speed of memory.

    The checksum of the sums of all rows and all columns of a table of 64-bit words: another word, and words in another
    place, change one of them.
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


def of_all_ranks(
    values: Sequence[int], *, rank: int, ranks: tuple[int, ...], transport: Transport, device: torch.device
) -> list[tuple[int, ...]]:
    """What each of some ranks brings, in their order: the sum of vectors in which all have a place of their own."""
    table = torch.zeros(len(ranks), len(values), dtype=torch.int64)
    table[ranks.index(rank)] = torch.tensor(values, dtype=torch.int64)
    table = table.to(device)
    transport.sum(table, ranks)
    return [tuple(row) for row in table.tolist()]


def check_same_batch(
    call: str, batch: object, *, rank: int, world_size: int, transport: Transport, device: torch.device
) -> None:
    """Complain where ranks were given different batches, or do different things.

    Parameters
    ----------
    call
        What the rank is about to do with it.

    Raises
    ------
    BadInputError
        On all ranks; it names those that differ from most others, and in what.
    """
    if world_size == 1:
        return
    everyone = tuple(range(world_size))
    look = _look(call, batch)
    tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor)]
    own = zlib.crc32(repr(look).encode()), fingerprint(tensors)
    brought = of_all_ranks(own, rank=rank, ranks=everyone, transport=transport, device=device)
    if len(set(brought)) == 1:
        return
    groups = [[other for other in everyone if brought[other] == value] for value in dict.fromkeys(brought)]
    looks = [Look(*cast(tuple[str, str, str], transport.broadcast(tuple(look), group[0]))) for group in groups]
    raise BadInputError(_difference(groups, looks))


def _look(call: str, batch: object) -> Look:
    parts = batch if isinstance(batch, tuple | list) and len(batch) == 2 else (batch, None)
    return Look(call, *(_seen(part) for part in parts))


def _seen(part: object) -> str:
    return ", ".join(map(_leaf, tree_leaves(part))) or "nothing"


def _leaf(leaf: object) -> str:
    if isinstance(leaf, Tensor):
        return f"{tuple(leaf.shape)} {str(leaf.dtype).removeprefix('torch.')}"
    return type(leaf).__name__


def _difference(groups: Sequence[list[int]], looks: Sequence[Look]) -> str:
    """Groups of ranks in order of size, and what they have."""
    ordered = sorted(zip(groups, looks, strict=True), key=lambda pair: -len(pair[0]))
    if len({look.call for look in looks}) > 1:
        told = [f"{ranks_label(group)} called {look.call}" for group, look in ordered]
        return f"batch: all ranks must call the same method; {'; '.join(told)}"
    if len(set(looks)) > 1:
        told = [f"{ranks_label(group)}: inputs {look.inputs}, targets {look.targets}" for group, look in ordered]
    else:
        told = [f"{' and '.join(ranks_label(group) for group, _ in ordered)} differ in its numbers"]
    rule = "all ranks must be given the same global batch, of which each takes its own samples"
    return f"batch: {rule}; {'; '.join(told)} (check_batches=False leaves this check out)"


def ranks_label(ranks: Sequence[int]) -> str:
    """`rank 3`, or `ranks 0, 1 and 5`."""
    *first, last = map(str, ranks)
    return f"ranks {', '.join(first)} and {last}" if first else f"rank {last}"
