"""`plan explain`."""

import json

import pytest


@pytest.fixture(scope="module")
def answer(plan_json, plan_file):
    return plan_json("explain", plan_file, "--quiet")


def test_every_unit_has_a_row(answer):
    """The tiny cluster has two classes of servers."""
    rows = answer["what_if"]
    assert [row["unit"] for row in rows] == ["", "server", "server", "memory", "nic", "fabric"]
    assert rows[0]["what"] == "nothing more"
    assert answer["complete"] is True
    assert {"objective_s", "bound_s", "gap", "seconds", "status", "solver"} <= rows[1].keys()


def test_one_more_unit_never_hurts(answer):
    """Shares are of the plan's own time, and what is found lies between it and what is proven."""
    for row in answer["what_if"]:
        assert row["objective_s"] <= answer["iteration_s"]
        assert row["saved_share"] == pytest.approx(1 - row["objective_s"] / answer["iteration_s"])
        assert -1e-9 <= row["saved_share"] <= row["saved_share_at_most"] + 1e-9


def test_optimal_plan_is_not_searched_for_again(answer):
    unchanged = answer["what_if"][0]
    assert (unchanged["status"], unchanged["seconds"]) == ("optimal", 0.0)
    assert unchanged["objective_s"] == answer["iteration_s"]


def test_what_binds_is_told(answer):
    binds = answer["binds"]
    assert 0 < binds["device"]["critical_share"] <= 1
    assert 0 < binds["memory"]["memory_share"] <= 1
    shares = [link["busy_share"] for link in binds["links"]]
    assert shares == sorted(shares, reverse=True)


def test_tables_are_on_stdout_and_progress_on_stderr(plan, plan_file):
    done = plan("explain", plan_file, "--what-if", "nic,server")
    assert done.exit_code == 0
    for words in ("how much", "bubbles", "one more server fast", "interfaces of every server twice as fast"):
        assert words in done.stdout
    assert "memory on every device" not in done.stdout
    assert "one more server fast: best " in done.stderr


def test_plan_without_a_proof_is_searched_for_again(plan, plan_json, tiny, tmp_path):
    path = tmp_path / "even.json"
    plan("solve", *tiny, "--solver", "even", "-o", path)
    unchanged, faster = plan_json("explain", path, "--what-if", "nic")["what_if"]
    assert unchanged["objective_s"] < json.loads(path.read_text())["certificate"]["objective_s"]
    assert faster["objective_s"] <= unchanged["objective_s"]


def test_plan_outside_the_search_space_is_explained_with_a_note(plan, changed_plan):
    path = changed_plan(lambda tree: tree["inputs"]["job"].update(schedules=["gpipe"]))
    done = plan("explain", path, "--what-if", "nic")
    assert done.exit_code == 0
    assert "outside the search space" in done.stderr


def test_unknown_unit_is_wrong_usage(plan, plan_file):
    done = plan("explain", plan_file, "--what-if", "servers")
    assert done.exit_code == 2
    assert "did you mean 'server'?" in done.stderr
