"""Checkpoints that were damaged, forged, or could not be finished."""

import json
import pickle
import resource
import shutil
import subprocess
import warnings
from functools import partial

import pytest
import torch
from torch import nn

from stagecut.executor import checkpoint, load
from stagecut.executor.manual_plan import plan_of
from stagecut.planner.core.messages.errors import BadInputError, OutputError

PARTS = ["values.pt", ".metadata", "__0_0.distcp", "checkpoint.json"]
NUM_FLIPPED = 64


def trained(steps=1, *, width=64):
    """Weights of (2 + 1) width + (width + 1) 2 numbers, and as many twice in the optimizer's state."""
    layers = [lambda: nn.Linear(2, width), lambda: nn.Linear(width, 2)]
    adamw = partial(torch.optim.AdamW, lr=0.1)
    pipeline = load(plan_of((0, 2), num_microbatches=2), layers, nn.functional.mse_loss, adamw)
    for _ in range(steps):
        pipeline.step((torch.ones(4, 2), torch.zeros(4, 2)))
    return pipeline


@pytest.fixture
def place(tmp_path):
    return checkpoint.save(trained(), tmp_path / "run")


def refusal(folder):
    pipeline = trained(0)
    before = [parameter.tolist() for parameter in pipeline.named_parameters().values()]
    with pytest.raises(BadInputError) as caught:
        checkpoint.restore(pipeline, folder)
    assert [parameter.tolist() for parameter in pipeline.named_parameters().values()] == before
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("start", [0.0, 0.5, 0.9])
def test_flipped_bytes_are_found_wherever_they_are(place, name, start):
    """Bytes of tensors have no meaning that could be wrong: only a checksum can tell."""
    path = place / name
    content = bytearray(path.read_bytes())
    first = int(start * len(content))
    for index in range(first, min(first + NUM_FLIPPED, len(content))):
        content[index] ^= 1
    path.write_bytes(content)
    assert name in refusal(place)


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_file_that_was_cut_short_is_named(place, name, share):
    path = place / name
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    message = refusal(place)
    assert name in message
    assert name == "checkpoint.json" or "is truncated: it has" in message


@pytest.mark.parametrize("name", PARTS[:3])
def test_file_that_is_missing_is_named(place, name):
    (place / name).unlink()
    assert f"{name} is missing" in refusal(place)


def test_file_that_has_grown_is_named(place):
    with (place / "__0_0.distcp").open("ab") as file:
        file.write(b"more")
    assert "__0_0.distcp is damaged" in refusal(place)


def without_checksums(place):
    """Rewrite a checkpoint as an earlier version would have written it."""
    path = place / "checkpoint.json"
    tree = json.loads(path.read_text())
    path.write_text(json.dumps({key: tree[key] for key in tree if key not in ("files", "sha256")} | {"schema": 1}))


def test_checkpoint_of_an_earlier_version_is_read_with_a_warning(place):
    without_checksums(place)
    pipeline = trained(0)
    with pytest.warns(UserWarning, match="was written without checksums"):
        checkpoint.restore(pipeline, place)
    assert pipeline.num_steps == 1


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_file_of_an_earlier_version_that_was_cut_short_is_named(place, share):
    without_checksums(place)
    path = place / "__0_0.distcp"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.warns(UserWarning, match="without checksums"), pytest.raises(BadInputError) as caught:
        checkpoint.restore(trained(0), place)
    assert "__0_0.distcp is damaged: " in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


class Attack:
    """Runs a command where it is unpickled."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return subprocess.getoutput, (self.command,)


@pytest.mark.parametrize("name", PARTS[:3])
def test_file_that_runs_something_when_it_is_read_is_refused(place, tmp_path, name):
    """Whoever forges a file forges its checksum, or does without."""
    without_checksums(place)
    attack = Attack(f"touch {tmp_path}/attacked")
    if name == ".metadata":
        (place / name).write_bytes(pickle.dumps(attack))
    else:
        torch.save(attack, place / name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert refusal(place).startswith(f"{place}: cannot be read")
    assert not (tmp_path / "attacked").exists()


def check_nothing_is_lost(folder, before):
    """The checkpoint before is there, whole and the only one; it can be restored."""
    assert sorted(path.name for path in folder.iterdir()) == [before.name]
    pipeline = trained(0)
    checkpoint.restore(pipeline, folder)
    assert pipeline.num_steps == checkpoint.latest(folder).name.count("1") == 1


@pytest.mark.parametrize("limit_bytes", [0, 1000, 10_000, 50_000])
def test_save_that_hits_a_limit_says_which_and_leaves_the_checkpoint_before(tmp_path, place, limit_bytes):
    """The system's largest size of a file, which the tensors of half a megabyte exceed, in place of a full disk."""
    pipeline = trained(2, width=4096)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        with pytest.raises(OutputError, match=r"cannot be written.*: File too large: .*distcp; earlier checkpoints"):
            checkpoint.save(pipeline, tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    check_nothing_is_lost(tmp_path / "run", place)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 400 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"mount: {mounted.stderr.strip() or 'not allowed'}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("left_bytes", [0, 4096, 100_000])
def test_full_disk_is_called_full(small_disk, left_bytes):
    """The disk fills up somewhere in the checkpoint; the failure leaves nothing behind."""
    before = checkpoint.save(trained(), small_disk / "run")
    filler = small_disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - left_bytes))
    with pytest.raises(OutputError, match=r"cannot be written.*: No space left on device"):
        checkpoint.save(trained(2, width=4096), small_disk / "run")
    filler.unlink()
    check_nothing_is_lost(small_disk / "run", before)
