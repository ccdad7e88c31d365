"""Plans with equal and unequal sizes that were trained on this machine: the pieces, and what was measured."""

import copy
import json
from dataclasses import asdict

import pytest

from benchmarks.harness.plan_runs import RunFigures, figures_of, layers_s
from benchmarks.report import pages, results
from benchmarks.unequal_runs import driver as unequal_runs
from benchmarks.unequal_runs.tables import SIZES

KEPT = results.read_kept(unequal_runs.DRIVER.name, unequal_runs.DRIVER.jobs)
PLANS = {name: part["plans"] for name, part in KEPT.items() if "plans" in part}


def figures(**changes):
    """A run 10 % slower than predicted, with nothing wrong."""
    usual = {"predicted_s": 1.0, "measured_s": 1.1, "spread": 0.01, "num_clean_steps": 3}
    return RunFigures(**{**usual, **changes})


def test_figures_are_those_of_the_steps_after_the_warm_up():
    """Steps of 1, 2, 3 s: quartiles 1, 2 and 3 s, so a spread of 2 / 2; two of them are clean."""
    steps = [{"seconds": each, "clean": each != 2} for each in (9.0, 1.0, 2.0, 3.0)]
    record = {"predicted_s": 1.6, "measured_s": 2.0, "warmup": 1, "steps": steps, "stages": []}
    found = figures_of({**record, "check": {"largest_gradient_difference": 1e-17}})
    assert (found.spread, found.num_clean_steps, found.gradient_difference) == (1.0, 2, 1e-17)
    assert found.error == pytest.approx(0.25)


def test_a_single_step_has_no_spread():
    steps = [{"seconds": 2.0, "clean": True}]
    found = figures_of({"predicted_s": 1.0, "measured_s": 2.0, "warmup": 0, "steps": steps, "stages": []})
    assert found.spread == 0
    assert found.gradient_difference is None


@pytest.mark.parametrize(
    ("changes", "drift", "contaminated"),
    [({}, 0.02, False), ({}, -0.04, True), ({"spread": 0.06}, 0.0, True), ({"num_clean_steps": 2}, 0.0, True)],
)
def test_a_run_counts_if_machine_and_steps_were_steady(changes, drift, contaminated):
    assert figures(**changes).is_contaminated(drift) is contaminated


def test_layers_are_added_up_by_size():
    """Size 1: 1 + 2 + 4 s; size 2: 3 s."""
    profile = {
        "layers": [
            {"forward_s": {"cpu": {"1": 1.0, "2": 3.0}}, "backward_s": {"cpu": {"1": 2.0}}},
            {"forward_s": {"cpu": {"1": 4.0}}, "backward_s": {}},
        ]
    }
    assert layers_s(profile) == {1: 7.0, 2: 3.0}


def test_sizes_are_told_along_the_way_of_the_samples():
    """The first stage sends two samples at a time forwards, the second one gradients as it makes them."""
    stages = [
        {"forward_micro_batch": 4, "backward_micro_batch": 8, "forward_message": 2},
        {"forward_micro_batch": 8, "backward_micro_batch": 16},
    ]
    assert unequal_runs.sizes_label(stages) == "F 4 (2) 8, B 16 8"
    assert unequal_runs.sizes_label([{"forward_micro_batch": 4, "backward_micro_batch": 4}] * 2) == "4"


def test_a_measured_cluster_is_widened_to_more_devices():
    """Nothing else changes: as many as were measured give the measured cluster."""
    measured = json.loads((unequal_runs.PROFILES / "vgg16.cluster.json").read_text(encoding="utf-8"))
    assert unequal_runs.widened(measured, 2) == measured
    assert unequal_runs.widened(measured, 8)["servers"][0]["islands"][0]["count"] == 8


def test_everything_was_measured_without_complaint():
    """Unequal sizes never predicted slower, gradients right, dilated mode as simulated."""
    assert list(KEPT) == list(unequal_runs.DRIVER.jobs)
    assert unequal_runs.DRIVER.complaint(KEPT) == ""


@pytest.mark.parametrize("workload", unequal_runs.WORKLOADS, ids=lambda workload: workload.name)
def test_profiles_have_times_of_every_layer_at_every_size(workload):
    """They are the ones whose sums the table shows."""
    profile = json.loads((unequal_runs.PROFILES / f"{workload.name}.profile.json").read_text(encoding="utf-8"))
    times = [by_type for layer in profile["layers"] for by_type in (layer["forward_s"], layer["backward_s"])]
    assert all({int(size) for size in own} == {*SIZES} for by_type in times for own in by_type.values())
    kept = {int(size): seconds for size, seconds in KEPT[f"{workload.name}, profile"].items()}
    assert layers_s(profile) == pytest.approx(kept)


@pytest.mark.parametrize(
    ("kind", "field", "value", "said"),
    [
        ("unequal", "predicted_s", 1e9, "predicted to be slower"),
        ("equal", "gradient_difference", 1e-6, "equal: gradients differ"),
        ("unequal", "gradient_difference", None, "unequal: gradients differ"),
        ("equal", "dilated", {**asdict(figures()), "gradient_difference": 0.0}, "dilated mode is 10.00 % off"),
    ],
)
def test_faults_are_complained_of(kind, field, value, said):
    """One figure of plans that both exist is changed."""
    plans = copy.deepcopy(next(plans for plans in PLANS.values() if len(plans) == 2))
    plans[kind][field] = value
    assert said in unequal_runs.DRIVER.complaint({"model": {"plans": plans}})


def test_the_page_shows_what_was_kept():
    for page, made in unequal_runs.DRIVER.tables(KEPT).items():
        text = page.read_text(encoding="utf-8")
        for name, table in made.items():
            assert pages.table_in(text, name) == table
