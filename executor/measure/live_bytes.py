"""Bytes of tensors: those that a forward saves, and the peak of those that are alive."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Storages = dict[int, torch.UntypedStorage]
"""By address, which is unique among live storages."""


def storages(tensors: Iterable[Tensor]) -> Storages:
    """The distinct storages of these tensors."""
    found = (plain.untyped_storage() for tensor in tensors for plain in _plain(tensor))
    return {storage.data_ptr(): storage for storage in found if storage.nbytes() > 0}


class SavedTensors(torch.autograd.graph.saved_tensors_hooks):
    """A context that records what autograd saves for the backward."""

    def __init__(self) -> None:
        self.found: Storages = {}
        super().__init__(self._note, lambda tensor: tensor)

    def _note(self, tensor: Tensor) -> Tensor:
        self.found.update(storages([tensor]))
        return tensor


class LiveBytes(TorchDispatchMode):
    """A context that counts the tensors made by operations for as long as they live.

    Parameters
    ----------
    present
        Counted from the start until they are freed.
    passed_over
        Not counted, such as weights and their gradients, which exist before and after.
    """

    def __init__(self, *, present: Storages, passed_over: Storages) -> None:
        TorchDispatchMode.__init__(self)
        self._passed_over = frozenset(passed_over)
        self._alive: dict[int, tuple[ref[torch.UntypedStorage], int]] = {}
        self._live_bytes = 0
        for storage in present.values():
            self._see(storage)
        self.start_bytes = self._live_bytes
        """Bytes of what was present."""
        self.peak_bytes = 0
        """Peak bytes in addition to those at the start."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                for tensor in _plain(leaf):
                    self._see(tensor.untyped_storage())
        self.peak_bytes = max(self.peak_bytes, self._live_bytes - self.start_bytes)
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        address, num_bytes = storage.data_ptr(), storage.nbytes()
        known = self._alive.get(address)
        if (
            num_bytes == 0
            or address in self._passed_over
            or (known and known[0]() is storage and known[1] == num_bytes)
        ):
            return
        if known:
            self._live_bytes -= known[1]
        self._alive[address] = ref(storage, partial(self._forget, address)), num_bytes
        self._live_bytes += num_bytes

    def _forget(self, address: int, gone: "ref[torch.UntypedStorage]") -> None:
        known = self._alive.get(address)
        if known is not None and known[0] is gone:
            self._live_bytes -= self._alive.pop(address)[1]


def _plain(tensor: Tensor) -> Iterator[Tensor]:
    """The tensors inside a wrapper such as a DTensor; otherwise the tensor itself."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield tensor
        return
    inner = (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])
    for each in inner:
        if isinstance(each, Tensor):
            yield from _plain(each)
