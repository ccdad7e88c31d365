"""Folders of checkpoints, without anything in them."""

import pytest

from stagecut.executor.checkpoint.folder import MANIFEST, latest, partial_place_of, place_of, prepare, prune, publish


def write(folder, steps):
    """An empty checkpoint, whole."""
    partial = partial_place_of(folder, steps)
    partial.mkdir()
    (partial / MANIFEST).write_text("{}")
    publish(partial, place_of(folder, steps))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_latest_goes_by_number_not_by_name(tmp_path):
    """Seven digits come before six in the order of names."""
    write(tmp_path, 999_999)
    write(tmp_path, 1_000_000)
    assert latest(tmp_path) == tmp_path / "step-1000000"


def test_what_is_not_whole_is_not_the_latest(tmp_path):
    write(tmp_path, 1)
    partial_place_of(tmp_path, 2).mkdir()
    (tmp_path / "step-000003").mkdir()
    (tmp_path / "step-last").mkdir()
    assert latest(tmp_path) == tmp_path / "step-000001"


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_no_checkpoint_is_the_latest_of_none(tmp_path, name):
    (tmp_path / "empty").mkdir()
    assert latest(tmp_path / name) is None


def test_leftovers_go_and_everything_else_stays(tmp_path):
    write(tmp_path, 1)
    (tmp_path / ".step-000002.partial" / "deep").mkdir(parents=True)
    (tmp_path / ".other").mkdir()
    (tmp_path / "losses.jsonl").write_text("")
    prepare(tmp_path)
    assert names(tmp_path) == [".other", "losses.jsonl", "step-000001"]


def test_oldest_go_and_those_of_a_run_that_was_taken_back_stay(tmp_path):
    """Keep 2 of 10, 20, 30; 40 is later than the one just written."""
    for steps in (10, 20, 30, 40):
        write(tmp_path, steps)
    prune(tmp_path, keep=2, up_to=30)
    assert names(tmp_path) == ["step-000020", "step-000030", "step-000040"]
