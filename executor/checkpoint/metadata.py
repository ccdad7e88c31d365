"""Reads `.metadata`, torch's description of the tensors of a checkpoint, without running anything that it names.

It is a pickle, and a pickle may name any function for its reader to call. Here each name on a short list stands for
an empty class created on the spot, all other names are refused, and the result is checked piece by piece while it is
converted into torch's own objects.
"""

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

T = TypeVar("T")

METADATA = ".metadata"
_KNOWN = {
    "torch.distributed.checkpoint.metadata": {
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size"},
    "builtins": {"getattr"},  # for enumeration members, in some versions of Python
    "pathlib": {"PosixPath", "WindowsPath"},
    "pathlib._local": {"PosixPath", "WindowsPath"},
}
_DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}


class _Named:
    """What a pickle builds with one of the known names: constructor arguments and state."""

    def __init__(self, *made_of: object) -> None:
        self.made_of = made_of

    def __setstate__(self, given: object) -> None:
        self.given = given


class _SafeUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Stand-ins by name, new ones for each lookup, so that a pickle cannot change them for others."""
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        if name not in _KNOWN.get(module, ()):
            raise pickle.UnpicklingError(f"{METADATA} refers to {module}.{name}, which does not belong in a checkpoint")
        return type(name, (_Named,), {})


def parse_metadata(content: bytes) -> Metadata:
    """Names, shapes, types and locations of all tensors.

    Raises
    ------
    pickle.UnpicklingError
        If it names anything but the classes that metadata consist of.
    ValueError
        If these are put together differently, or refer to anything but tensors or to files outside the folder.
    """
    try:
        return _metadata(_SafeUnpickler(io.BytesIO(content)).load())
    except (pickle.UnpicklingError, ValueError):
        raise
    except Exception as fault:  # a damaged pickle may fail in any way
        raise ValueError(f"{METADATA} is damaged: {type(fault).__name__}") from None


def _metadata(root: object) -> Metadata:
    fields = _fields(root)
    saved, places = (_typed(fields.get(name), dict) for name in ("state_dict_metadata", "storage_data"))
    return Metadata(
        state_dict_metadata={_typed(name, str): _tensor(tensor) for name, tensor in saved.items()},
        storage_data={_index(index): _place(place) for index, place in places.items()},
        storage_meta=StorageMeta(),
    )


def _tensor(saved: object) -> TensorStorageMetadata:
    fields = _fields(saved)
    properties = getattr(_typed(fields.get("properties"), _Named), "given", None)
    dtype = _typed((_typed(properties, tuple) or (None,))[0], torch.dtype)
    chunks = [_fields(chunk) for chunk in _typed(fields.get("chunks"), list)]
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=dtype),
        size=_size(fields.get("size")),
        chunks=[ChunkStorageMetadata(_size(chunk.get("offsets")), _size(chunk.get("sizes"))) for chunk in chunks],
    )


def _index(index: object) -> MetadataIndex:
    fields = _fields(index)
    offset, number = fields.get("offset"), fields.get("index")
    return MetadataIndex(
        _typed(fields.get("fqn"), str),
        None if offset is None else _size(offset),
        None if number is None else _typed(number, int),
    )


def _place(place: object) -> _StorageInfo:
    fields = _fields(place)
    name = _typed(fields.get("relative_path"), str)
    if Path(name).name != name or fields.get("transform_descriptors"):
        raise ValueError(f"{METADATA}: {name!r} is not a file of a checkpoint")
    return _StorageInfo(name, _typed(fields.get("offset"), int), _typed(fields.get("length"), int))


def _size(size: object) -> torch.Size:
    numbers = getattr(_typed(size, _Named), "made_of", ((),))
    values = [_typed(number, int) for part in numbers for number in part]
    if min(values, default=0) < 0:
        raise ValueError(f"{METADATA}: {values} is not a shape")
    return torch.Size(values)


def _fields(thing: object) -> Mapping[str, object]:
    given: Mapping[str, object] = _typed(getattr(_typed(thing, _Named), "given", None), dict)
    return given


def _typed(value: object, kind: type[T]) -> T:
    """The value, if it is of exactly this type or built with a name."""
    if type(value) is not kind and not (kind is _Named and isinstance(value, _Named)):
        raise ValueError(f"{METADATA} has a {type(value).__name__} where a {kind.__name__} belongs")
    return value  # type: ignore[return-value]
