"""Numbers, text, tensors and containers of them, from rank to rank.

torch.distributed sends objects as pickles, and whoever can put himself between two ranks can have code run by the
one that reads. Here they are read as torch reads weights: nothing is built but these types, and classes of data
that the reader names.
"""

import io
from collections.abc import Sequence
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from stagecut.executor.play.distributed import TORCH_DISTRIBUTED, Distributed

T = TypeVar("T")


def broadcast(value: T, source: int, *, distributed: Distributed = TORCH_DISTRIBUTED) -> T:
    """What rank `source` gave."""
    content = encoded(value) if distributed.get_rank() == source else b""
    device = _device(distributed)
    size = torch.tensor([len(content)], device=device)
    distributed.broadcast(size, source)
    buffer = _padded(content, int(size), device)
    distributed.broadcast(buffer, source)
    return cast(T, decoded(_content(buffer)))


def gather(value: T, *, classes: Sequence[type] = ()) -> list[T] | None:
    """What every rank brings, by rank; None on all ranks but the first."""
    content = encoded(value)
    sizes = _sizes(content)
    own = _padded(content, max(sizes), _device())
    buffers = [torch.empty_like(own) for _ in sizes] if dist.get_rank() == 0 else None
    dist.gather(own, buffers)
    return None if buffers is None else _read(buffers, sizes, classes)


def gather_everywhere(value: T, *, classes: Sequence[type] = ()) -> list[T]:
    """What every rank brings, by rank, on all of them."""
    content = encoded(value)
    sizes = _sizes(content)
    own = _padded(content, max(sizes), _device())
    buffers = [torch.empty_like(own) for _ in sizes]
    dist.all_gather(buffers, own)
    return _read(buffers, sizes, classes)


def encoded(value: object) -> bytes:
    """As it is sent."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def decoded(content: bytes, classes: Sequence[type] = ()) -> object:
    """As it is received.

    Raises
    ------
    pickle.UnpicklingError
        If it is of other types than those above.
    """
    with torch.serialization.safe_globals(list(classes)):
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def _read(buffers: Sequence[Tensor], sizes: Sequence[int], classes: Sequence[type]) -> list[T]:
    contents = (_content(buffer)[:size] for buffer, size in zip(buffers, sizes, strict=True))
    return [cast(T, decoded(content, classes)) for content in contents]


def _sizes(content: bytes) -> list[int]:
    """Bytes of every rank."""
    own = torch.tensor([len(content)], device=_device())
    every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    return [int(size) for size in every]


def _padded(content: bytes, size: int, device: torch.device) -> Tensor:
    buffer = torch.zeros(size, dtype=torch.uint8)
    if content:
        buffer[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    return buffer.to(device)


def _content(buffer: Tensor) -> bytes:
    return buffer.cpu().numpy().tobytes()


def _device(distributed: Distributed = TORCH_DISTRIBUTED) -> torch.device:
    """Where tensors have to be to travel: NCCL alone takes those of GPUs only."""
    if "cpu:" in str(distributed.get_backend_config()) or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())
