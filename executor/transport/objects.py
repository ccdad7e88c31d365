"""Numbers, text, tensors, and containers of them, sent from rank to rank.

torch.distributed sends objects as pickles, so anyone who gets between two ranks could make the receiver run code.
Here objects are read the way torch reads weights: only these types are built, and data classes that the reader names.
"""

import io
from collections.abc import Sequence
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from stagecut.executor.transport.interface import TORCH_DISTRIBUTED, Distributed

T = TypeVar("T")


def broadcast(value: T, source: int, *, distributed: Distributed = TORCH_DISTRIBUTED) -> T:
    """The value given by rank `source`."""
    content = encoded(value) if distributed.get_rank() == source else b""
    device = _device(distributed)
    size = torch.tensor([len(content)], device=device)
    distributed.broadcast(size, source)
    buffer = _padded(content, int(size), device)
    distributed.broadcast(buffer, source)
    return cast(T, decoded(_content(buffer)))


def gather(value: T, *, classes: Sequence[type] = (), everywhere: bool = False) -> list[T] | None:
    """The values of all ranks, by rank; None on all ranks but the first, unless gathered `everywhere`.

    Parameters
    ----------
    classes
        Data classes that the values may hold.
    """
    content = encoded(value)
    own_size = torch.tensor([len(content)], device=_device())
    sizes = [torch.empty_like(own_size) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, own_size)
    own = _padded(content, max(map(int, sizes)), _device())
    receives = everywhere or dist.get_rank() == 0
    buffers = [torch.empty_like(own) for _ in sizes] if receives else None
    if everywhere:
        dist.all_gather(buffers, own)
    else:
        dist.gather(own, buffers)
    if buffers is None:
        return None
    contents = (_content(buffer)[: int(size)] for buffer, size in zip(buffers, sizes, strict=True))
    return [cast(T, decoded(each, classes)) for each in contents]


def gather_everywhere(value: T, *, classes: Sequence[type] = ()) -> list[T]:
    """The values of all ranks, by rank, on all of them."""
    return cast(list[T], gather(value, classes=classes, everywhere=True))


def encoded(value: object) -> bytes:
    """A value as it is sent."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def decoded(content: bytes, classes: Sequence[type] = ()) -> object:
    """A value as it is received.

    Raises
    ------
    pickle.UnpicklingError
        If it contains any other type.
    """
    with torch.serialization.safe_globals(list(classes)):
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def _padded(content: bytes, size: int, device: torch.device) -> Tensor:
    buffer = torch.zeros(size, dtype=torch.uint8)
    if content:
        buffer[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    return buffer.to(device)


def _content(buffer: Tensor) -> bytes:
    return buffer.cpu().numpy().tobytes()


def _device(distributed: Distributed = TORCH_DISTRIBUTED) -> torch.device:
    """Where tensors must be to travel: NCCL alone sends only those on GPUs."""
    if "cpu:" in str(distributed.get_backend_config()) or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())
