"""`plan check`."""

import pytest


def stage(tree, index=0):
    return tree["plan"]["pipelines"][0]["stages"][index]


def test_a_fresh_plan_agrees(plan, plan_json, plan_file):
    """3 hashes, the iteration time, 7 numbers of each of 2 stages, objective and gap: 20."""
    done = plan("check", plan_file)
    assert done.exit_code == 0
    assert "agree" in done.stdout
    outcome = plan_json("check", plan_file)
    assert (outcome["agrees"], outcome["num_checks"]) == (True, 20)
    assert outcome["differences"] == outcome["faults"] == []


@pytest.mark.parametrize("number", ["forward_s", "backward_s", "transfer_s", "sync_s", "update_s", "memory_bytes"])
def test_every_predicted_number_is_derived_again(plan_json, changed_plan, number):
    def change(tree):
        tree["predicted"]["stages"][0][number] *= 1.001

    outcome = plan_json("check", changed_plan(change), exit_code=6)
    assert [found["where"] for found in outcome["differences"]] == [f"predicted.stages[0].{number}"]


def test_a_changed_input_shows_in_its_hash_and_in_what_follows(plan, plan_json, changed_plan):
    """Half the memory bandwidth of the slow devices: the optimizer step takes twice as long."""

    def change(tree):
        tree["inputs"]["cluster"]["device_types"][1]["memory_bandwidth_bytes_per_s"] /= 2

    path = changed_plan(change)
    found = {item["where"]: item for item in plan_json("check", path, exit_code=6)["differences"]}
    assert "provenance.input_hashes.cluster" in found
    assert "certificate.objective_s" in found
    slow = [item for where, item in found.items() if where.endswith("update_s")]
    assert [item["derived"] for item in slow] == pytest.approx([2 * item["stated"] for item in slow])
    assert "certificate.objective_s" in plan("check", path).stdout


def test_rounding_is_no_difference(plan, changed_plan):
    def change(tree):
        tree["predicted"]["iteration_s"] *= 1 + 1e-13

    assert plan("check", changed_plan(change)).exit_code == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tree: tree["certificate"].update(bound_s=9e9, gap=0.0), "above the time"),
        (lambda tree: tree["certificate"].update(bound_s=None, gap=None), "optimal without a bound"),
        (lambda tree: tree["certificate"].update(bound_s=0.0, gap=1.0), "optimal with a gap of 1"),
        (lambda tree: stage(tree).update(warmup_depth=5), "warm-up depth 5"),
        (lambda tree: stage(tree).update(recompute=True), "recomputes"),
        (lambda tree: tree["inputs"]["job"].update(schedules=["gpipe"]), "not allowed by the job"),
        (lambda tree: tree["inputs"]["job"].update(micro_batches=[1]), "not allowed by the job"),
        (lambda tree: tree["inputs"]["job"].update(replicas=[1]), "replicas are not allowed"),
        (lambda tree: tree["inputs"]["cluster"]["device_types"][1].update(memory_bytes=1e8), "of memory"),
    ],
)
def test_broken_rules_are_told(plan_json, changed_plan, change, words):
    outcome = plan_json("check", changed_plan(change), exit_code=6)
    assert any(words in fault for fault in outcome["faults"]), outcome


def test_a_gap_that_does_not_follow_is_told(plan_json, changed_plan):
    outcome = plan_json("check", changed_plan(lambda tree: tree["certificate"].update(gap=0.0)), exit_code=6)
    assert [found["where"] for found in outcome["differences"]] == ["certificate.gap"]


def test_a_file_that_is_no_plan_is_bad_input(plan, tiny_folder):
    done = plan("check", tiny_folder / "job.yaml")
    assert done.exit_code == 3
    assert "this is a job file, a plan file is wanted" in done.stderr
