"""`.metadata` of a checkpoint: read as torch reads it, without running what it names."""

import os
import pickle

import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from stagecut.executor.checkpoint.metadata import parse_metadata

NAME = "model.layer.weight"


def metadata(*, name=NAME, saved=None, file="__0_0.distcp", dtype=torch.bfloat16, transforms=None):
    """Metadata of one tensor in two parts."""
    chunks = [ChunkStorageMetadata(torch.Size([start, 0]), torch.Size([2, 3])) for start in (0, 2)]
    whole = TensorStorageMetadata(TensorProperties(dtype=dtype), torch.Size([4, 3]), chunks)
    places = {MetadataIndex(name, (2, 0), 1): _StorageInfo(file, 10, 20, transforms)}
    return Metadata({name: saved or whole}, storage_data=places, storage_meta=StorageMeta("folder"))


class Calls:
    """Pickled as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float8_e4m3fn])
def test_what_torch_writes_is_read_as_torch_reads_it(protocol, dtype):
    content = pickle.dumps(metadata(dtype=dtype), protocol)
    expected = pickle.loads(content)
    found = parse_metadata(content)
    assert found.state_dict_metadata == expected.state_dict_metadata
    assert found.storage_data == expected.storage_data


@pytest.mark.parametrize(
    "call",
    [
        Calls(os.system, "touch attacked"),
        Calls(eval, "open('attacked', 'w')"),
        Calls(exec, "open('attacked', 'w')"),
        Calls(torch.hub.load, ".", "attacked"),
        Calls(torch.load, "attacked"),
        Calls(pickle.loads, b"cos\nsystem\n(S'touch attacked'\ntR."),
    ],
    ids=lambda call: call.call[0].__name__,
)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_function_that_it_names_is_not_called(tmp_path, monkeypatch, call, protocol):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pickle.UnpicklingError, match="does not belong in a checkpoint"):
        parse_metadata(pickle.dumps(metadata(saved=call), protocol))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch", "Size.__new__"),
        ("torch", "os.system"),
        ("torch.distributed.checkpoint.metadata", "os.PathLike.register"),
        ("torch", "load"),
        ("builtins", "__import__"),
    ],
)
def test_name_that_leads_on_from_a_known_one_is_refused(module, name):
    """Dots in a name are attributes, in protocol 4."""
    words = b"".join(pickle.SHORT_BINUNICODE + bytes([len(word)]) + word.encode() for word in (module, name))
    with pytest.raises(pickle.UnpicklingError, match=f"{module}.{name}, which does not belong in a checkpoint"):
        parse_metadata(pickle.PROTO + b"\x04" + words + pickle.STACK_GLOBAL + pickle.STOP)


def test_attributes_are_not_looked_up(tmp_path, monkeypatch):
    """`getattr` is what some versions of Python write for members of enumerations."""
    monkeypatch.chdir(tmp_path)
    climbing = Calls(getattr, Calls(getattr, Metadata, "__init__"), "__globals__")
    with pytest.raises(ValueError, match="metadata has a"):
        parse_metadata(pickle.dumps(metadata(saved=climbing)))


def test_classes_of_torch_stay_as_they_are():
    """The state of a pickled class may set attributes of the class itself."""
    state = b"N}\x8c\x05hello\x8c\x05worlds\x86b."
    with pytest.raises(ValueError, match="is damaged"):
        parse_metadata(b"\x80\x04ctorch.distributed.checkpoint.metadata\nMetadata\n" + state)
    assert not hasattr(Metadata, "hello")


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (metadata(file="../../elsewhere"), "is not a file of a checkpoint"),
        (metadata(file="/etc/passwd"), "is not a file of a checkpoint"),
        (metadata(transforms=["zstd"]), "is not a file of a checkpoint"),
        (metadata(dtype="float32"), "has a str where a dtype belongs"),
        (Metadata({}), "has a NoneType where a dict belongs"),
        ([1, 2], "has a list where"),
        (metadata(saved=5), "has a int where"),
    ],
)
def test_what_is_put_together_in_another_way_is_refused(tree, message):
    with pytest.raises(ValueError, match=message):
        parse_metadata(pickle.dumps(tree))


def test_bytes_in_the_place_of_a_tensor_are_refused():
    """Torch would read them as a pickle."""
    with pytest.raises(pickle.UnpicklingError, match="BytesStorageMetadata, which does not belong"):
        parse_metadata(pickle.dumps(metadata(saved=BytesStorageMetadata())))


def test_damage_is_a_plain_fault_wherever_it_is():
    """Every prefix, and every byte changed in two ways: read, or refused, and nothing else."""
    content = pickle.dumps(metadata())
    damaged = [content[:size] for size in range(len(content))]
    damaged += [
        content[:i] + bytes([content[i] ^ bit]) + content[i + 1 :] for i in range(len(content)) for bit in (1, 64)
    ]
    num_refused = 0
    for each in damaged:
        try:
            parse_metadata(each)
        except (ValueError, pickle.UnpicklingError):
            num_refused += 1
    assert num_refused > len(content)
