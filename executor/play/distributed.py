"""The part of `torch.distributed` that messages between ranks use, so that something else can stand in for it."""

from typing import Any, Protocol, cast

import torch.distributed as dist
from torch import Tensor


class Pending(Protocol):
    """A send or receive under way."""

    def wait(self) -> object:
        """Return when it is done; on a GPU, when its stream can rely on it."""
        ...


class Distributed(Protocol):
    """What messages between ranks take from `torch.distributed`, under the names that it has there."""

    group: Any
    P2POp: Any
    isend: Any
    irecv: Any

    def get_rank(self) -> int:
        """See `torch.distributed`."""
        ...

    def get_backend_config(self) -> str:
        """See `torch.distributed`."""
        ...

    def new_group(self, ranks: list[int], *, backend: str | None = None) -> Any:
        """See `torch.distributed`."""
        ...

    def batch_isend_irecv(self, p2p_op_list: list[Any]) -> list[Pending]:
        """See `torch.distributed`."""
        ...

    def all_reduce(self, tensor: Tensor, *, group: Any) -> object:
        """See `torch.distributed`."""
        ...

    def broadcast(self, tensor: Tensor, src: int) -> object:
        """See `torch.distributed`."""
        ...

    def barrier(self) -> object:
        """See `torch.distributed`."""
        ...


TORCH_DISTRIBUTED = cast(Distributed, dist)
