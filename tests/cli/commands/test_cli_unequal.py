"""Unequal micro-batches on the command line."""

import json

import pytest


@pytest.fixture(scope="module")
def unequal(plan, tiny, tmp_path_factory):
    """A plan with sublot sizes of its own, made by hand from the best equal one."""
    path = tmp_path_factory.mktemp("unequal") / "plan.json"
    done = plan("solve", *tiny, "--micro-batch", "unequal:1,2,4,8", "--schedule", "gpipe", "--gap", "1%", "-o", path)
    assert done.exit_code == 0, done.output
    return path


def test_solve_writes_a_plan_that_checks(plan, unequal):
    done = plan("check", unequal)
    assert done.exit_code == 0, done.output


def test_job_and_options_are_kept_in_the_plan_file(unequal):
    held = json.loads(unequal.read_text())["inputs"]["job"]
    assert (held["unequal"], held["micro_batches"]) == (True, [1, 2, 4, 8])


@pytest.mark.parametrize(
    ("choice", "sizes"),
    [
        ("unequal", [1, 2, 4, 8, 16, 32]),
        ("unequal:divisors", [1, 2, 4, 8, 16, 32]),
        ("unequal:3,5", [3, 5]),
        ("unequal:all", list(range(1, 33))),
    ],
)
def test_sizes_are_a_word_or_a_list(plan, tiny, tmp_path, choice, sizes):
    path = tmp_path / "plan.json"
    done = plan("solve", *tiny, "--micro-batch", choice, "--solver", "umpipe", "--schedule", "gpipe", "-o", path)
    if done.exit_code == 0:
        assert json.loads(path.read_text())["inputs"]["job"]["micro_batches"] == sizes
    else:
        assert choice == "unequal:3,5"  # no equal micro-batch of 3 or 5 makes 32 samples


@pytest.mark.parametrize(
    ("choice", "complaint"),
    [
        ("unequal:0", "must be a whole number of at least 1, got 0"),
        ("unequal:2,x", "'x' is not a whole number; write 1,2,4 or 1-4"),
        ("unequal:prime", "'prime' is not a whole number"),
        ("inequal", "'inequal' is not a whole number"),
    ],
)
def test_other_words_are_refused_at_once(plan, tiny, choice, complaint):
    done = plan("solve", *tiny, "--micro-batch", choice)
    assert done.exit_code in (2, 3)
    assert complaint in done.stderr
