"""Bytes of tensors: those that a forward keeps, and those that live for a moment."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Storages = dict[int, torch.UntypedStorage]
"""By address: two that are alive have different ones."""


def storages(tensors: Iterable[Tensor]) -> Storages:
    """What holds these tensors, each once."""
    found = (tensor.untyped_storage() for tensor in tensors)
    return {storage.data_ptr(): storage for storage in found if storage.nbytes() > 0}


class SavedTensors(torch.autograd.graph.saved_tensors_hooks):
    """Inside this context, autograd says what it keeps for the backward."""

    def __init__(self) -> None:
        self.found: Storages = {}
        super().__init__(self._note, lambda tensor: tensor)

    def _note(self, tensor: Tensor) -> Tensor:
        self.found.update(storages([tensor]))
        return tensor


class LiveBytes(TorchDispatchMode):
    """Inside this context, tensors that operations make are counted for as long as they live.

    Parameters
    ----------
    present
        Counted from the start, until they are freed.
    passed_over
        Not counted: what was there before and stays, such as weights and their gradients.
    """

    def __init__(self, *, present: Storages, passed_over: Storages) -> None:
        TorchDispatchMode.__init__(self)
        self._alive = {address: (StorageWeakRef(each), each.nbytes()) for address, each in present.items()}
        self._passed_over = frozenset(passed_over)
        self._start_bytes = sum(num_bytes for _, num_bytes in self._alive.values())
        self.peak_bytes = 0
        """On top of what was there at the start."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self._alive = {address: entry for address, entry in self._alive.items() if not entry[0].expired()}
        made = storages(leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
        for address, storage in made.items():
            if address not in self._passed_over:
                self._alive[address] = (StorageWeakRef(storage), storage.nbytes())
        live_bytes = sum(num_bytes for _, num_bytes in self._alive.values())
        self.peak_bytes = max(self.peak_bytes, live_bytes - self._start_bytes)
        return result
