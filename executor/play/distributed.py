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

    def get_rank(self) -> int: ...  # noqa: D102
    def get_backend_config(self) -> str: ...  # noqa: D102
    def new_group(self, ranks: list[int], *, backend: str | None = None) -> Any: ...  # noqa: D102
    def batch_isend_irecv(self, p2p_op_list: list[Any]) -> list[Pending]: ...  # noqa: D102
    def all_reduce(self, tensor: Tensor, *, group: Any) -> object: ...  # noqa: D102
    def broadcast(self, tensor: Tensor, src: int) -> object: ...  # noqa: D102
    def barrier(self) -> object: ...  # noqa: D102


TORCH_DISTRIBUTED = cast(Distributed, dist)
