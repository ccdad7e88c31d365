"""Virtual workers that train through waves, on the command line."""

import json
from pathlib import Path

import pytest

WSP = ("--synchronisation", "wsp", "--micro-batch", "4")


@pytest.fixture(scope="module")
def through_waves(tiny_folder):
    """Arguments for two fast and two slow devices, minibatches of 4 samples; the longest search takes a second."""
    files = ("--model", tiny_folder / "profile.yaml", "--cluster", tiny_folder / "cluster.yaml")
    return *files, *WSP, "--time-limit", "10"


@pytest.fixture(scope="module")
def solved(plan_json, through_waves, tmp_path_factory):
    """A plan of two workers of a fast and a slow device each, and the answer that came with it."""
    folder = tmp_path_factory.mktemp("waves")
    pictures = ("--trace", folder / "trace.json", "--gantt", folder / "gantt.svg")
    choices = ("--allocation", "ed", "--in-flight", "2", "--clock-distance", "1")
    answer = plan_json("solve", *through_waves, *choices, "-o", folder / "plan.json", *pictures)
    return folder / "plan.json", answer


def test_solve_answers_in_samples_per_second_with_a_bound(solved):
    """N_m = 2 and D = 1: s_local = 1, s_global = (D + 2) N_m - 2 = 4."""
    _, answer = solved
    samples_per_s, bound = answer["samples_per_s"], answer["bound_samples_per_s"]
    assert 0 < samples_per_s <= bound
    assert answer["gap"] == pytest.approx((bound - samples_per_s) / bound)
    assert (answer["s_local"], answer["s_global"]) == (1, 4)
    assert answer["solver"] == "waves-ed"
    assert len(answer["workers"]) == 2
    assert answer["weight_versions"] == [2, 2]
    stages = answer["workers"][0]["stages"]
    assert all(stage["memory_bytes"] <= stage["limit_bytes"] for stage in stages)


def test_plan_file_holds_the_answer_and_its_job(solved):
    path, answer = solved
    tree = json.loads(path.read_text())
    assert tree["schema"] == 2
    assert tree["plan"] == answer["plan"]
    assert tree["certificate"]["samples_per_s"] == answer["samples_per_s"]
    job = tree["inputs"]["job"]
    assert (job["global_batch"], job["micro_batches"]) == (4, [4])
    assert job["waves"] | {"clock_distance": 1, "in_flight": 2, "allocation": "ed"} == job["waves"]
    assert set(tree["provenance"]["options"]) == {"solver", "gap", "time_limit_s", "memory_limit_bytes", "threads"}


def test_pictures_are_drawn(solved):
    folder = solved[0].parent
    assert json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert "<svg" in (folder / "gantt.svg").read_text()


def test_people_see_workers_and_staleness(plan, solved):
    shown = " ".join(plan("simulate", solved[0]).stdout.split())
    assert "tiny-6 on tiny-2x2: 2 virtual workers, N_m = 2, minibatches of 4, D = 1" in shown
    assert "global staleness at most 4 minibatches" in shown
    assert "throughput" in shown
    assert "tokens per second" in shown


def test_simulate_says_what_solve_said(plan_json, solved):
    path, answer = solved
    simulated = plan_json("simulate", path)
    assert {key: answer[key] for key in simulated} == simulated


def test_simulate_draws_the_same_pictures(plan, solved, tmp_path):
    path, _ = solved
    done = plan("simulate", path, "--trace", tmp_path / "trace.json", "--gantt", tmp_path / "gantt.svg")
    assert done.exit_code == 0, done.output
    for name in ("trace.json", "gantt.svg"):
        assert (tmp_path / name).read_bytes() == (path.parent / name).read_bytes()


def test_equal_searches_write_equal_files(plan, through_waves, solved, tmp_path):
    again = tmp_path / "plan.json"
    choices = ("--allocation", "ed", "--in-flight", "2", "--clock-distance", "1")
    assert plan("solve", *through_waves, *choices, "--quiet", "-o", again).exit_code == 0
    assert again.read_bytes() == solved[0].read_bytes()


def test_check_agrees_with_solve(plan, solved):
    done = plan("check", solved[0])
    assert done.exit_code == 0, done.output
    assert "numbers agree, and the plan is legal" in done.stdout
    assert "certificate.bound_samples_per_s: claimed by waves-ed" in done.stdout


def test_check_proves_the_bound_again(plan, plan_json, solved):
    done = plan("check", solved[0], "--prove")
    assert done.exit_code == 0, done.output
    assert "samples/s is proven again, by waves-ed" in done.stdout
    assert plan_json("check", solved[0], "--prove")["proof"]["outcome"] == "proven"


def test_a_bound_below_what_is_possible_is_refuted(plan_json, solved, tmp_path):
    path = changed(solved[0], tmp_path, ("certificate", "bound_samples_per_s"), 1e-3)
    answer = plan_json("check", path, "--prove", exit_code=6)
    assert answer["proof"]["outcome"] == "refuted"
    assert any("is below the plan's own" in fault for fault in answer["faults"])


@pytest.mark.parametrize(
    ("steps", "value", "where"),
    [
        (("predicted", "samples_per_s"), 1e6, "predicted.samples_per_s"),
        (("predicted", "s_global"), 3, "predicted.s_global"),
        (("predicted", "workers", 1, "stages", 0, "push_s"), 9.0, "predicted.workers[1].stages[0].push_s"),
        (("predicted", "workers", 0, "stages", 0, "weight_versions"), 1, "stages[0].weight_versions"),
        (("certificate", "samples_per_s"), 1e6, "certificate.samples_per_s"),
        (("certificate", "solver"), "waves-np", "certificate.solver"),
        (("inputs", "profile", "name"), "other", "provenance.input_hashes.profile"),
    ],
)
def test_check_finds_every_changed_number(plan_json, solved, tmp_path, steps, value, where):
    answer = plan_json("check", changed(solved[0], tmp_path, steps, value), exit_code=6)
    assert any(where in difference["where"] for difference in answer["differences"])


def test_check_of_a_status_that_the_gap_contradicts(plan_json, solved, tmp_path):
    path = changed(solved[0], tmp_path, ("certificate", "bound_samples_per_s"), 1e9)
    assert "status optimal with a gap of" in " ".join(plan_json("check", path, exit_code=6)["faults"])


def test_compare_plans_by_every_allocation(plan_json, through_waves):
    answer = plan_json("compare", *through_waves, "--in-flight", "2")
    rows = {row["solver"]: row for row in answer["results"]}
    assert list(rows) == ["waves-np", "waves-ed", "waves-hd", "waves-optimal"]
    assert max(row["of_best"] for row in rows.values()) == 1
    assert rows["waves-optimal"]["of_best"] == pytest.approx(1)
    assert answer["contradiction"] is None


def test_dry_run_shows_the_choices(plan_json, plan, through_waves):
    problem = plan_json("solve", *through_waves, "--clock-distance", "4", "--dry-run")["problem"]
    assert (problem["minibatch"], problem["waves"]["clock_distance"]) == (4, 4)
    assert "allocation      optimal" in plan("solve", *through_waves, "--dry-run").stdout


def test_job_file_may_ask_for_waves(plan, tiny_folder, tmp_path):
    job = tmp_path / "job.yaml"
    job.write_text(
        "schema: 1\nglobal_batch: 8\nmicro_batches: [4]\nzero1: true\nwaves: {allocation: np, in_flight: 1}\n"
    )
    files = ("--model", tiny_folder / "profile.yaml", "--cluster", tiny_folder / "cluster.yaml", "--job", job)
    done = plan("solve", *files, "--clock-distance", "2", "--time-limit", "10", "-o", tmp_path / "plan.json")
    assert done.exit_code == 0, done.output
    assert "note: job: global_batch, zero1: no effect with synchronisation wsp" in done.stderr
    waves = json.loads((tmp_path / "plan.json").read_text())["inputs"]["job"]["waves"]
    assert (waves["allocation"], waves["in_flight"], waves["clock_distance"]) == ("np", 1, 2)
    back = plan("solve", *files, "--synchronisation", "all-reduce", "--pipelines", "1", "--quiet", "--solver", "even")
    assert "per iteration" in back.stdout


def test_global_batch_is_a_wave_of_all_workers_that_make_one_step_of_it(plan_json, through_waves):
    """Two workers of a host each share 16 samples as 2 minibatches of 4."""
    answer = plan_json("solve", *through_waves, "--local-step", "wave", "--global-batch", "16", "--allocation", "np")
    assert [worker["wave"] for worker in answer["workers"]] == [2, 2]
    assert answer["weight_versions"] == [1, 1]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--clock-distance", "0"), "'--clock-distance': only with '--synchronisation wsp'"),
        (("--workers", "2", "--equal-waves"), "'--workers', '--proportional-waves': only with"),
        (WSP[:2], "'--synchronisation wsp' needs one '--micro-batch', the size of a minibatch"),
        ((*WSP[:3], "2,4"), "'--synchronisation wsp' needs one '--micro-batch'"),
        ((*WSP[:3], "unequal:4"), "'--synchronisation wsp' needs one '--micro-batch'"),
        ((*WSP, "--schedule", "gpipe"), "'--schedule': no effect with '--synchronisation wsp'"),
        ((*WSP, "--replicas", "1", "--no-zero1"), "'--replicas', '--zero1': no effect with"),
        ((*WSP, "--solver", "milp"), "'--solver': no effect with '--synchronisation wsp'"),
        ((*WSP, "--rows", "all"), "'--rows': no effect with '--synchronisation wsp'"),
        ((*WSP, "--convergence", "x.png"), "'--convergence': no effect with '--synchronisation wsp'"),
        ((*WSP, "--global-batch", "32"), "'--global-batch': no effect with '--synchronisation wsp'"),
        ((*WSP, "--local-step", "wave"), "'--local-step wave' needs '--global-batch', the samples of one wave"),
        ((*WSP, "--in-flight", "some"), "'some' is not a whole number; write auto or a number such as 4"),
    ],
)
def test_options_without_effect_are_wrong_usage(plan, tiny_folder, arguments, complaint):
    files = ("--model", tiny_folder / "profile.yaml", "--cluster", tiny_folder / "cluster.yaml")
    batch = () if "wsp" in arguments else ("--global-batch", "32")
    done = plan("solve", *files, *batch, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_workers_that_take_no_time_have_an_unlimited_rate(plan, tmp_path):
    """Two devices without links to wait for, and a layer that takes 0 s."""
    model, cluster, path = (tmp_path / name for name in ("model.yaml", "cluster.yaml", "plan.json"))
    layer, device = "{name: a, params_bytes: 0, forward_s: {G: 0}, backward_s: {G: 0}}", "{name: G, memory_bytes: 1e9}"
    model.write_text(f"schema: 1\nname: m\nlayers: [{layer}]\n")
    servers = "[{name: h, islands: [{device_type: G, count: 2}]}]"
    cluster.write_text(f"schema: 1\nname: c\ndevice_types: [{device}]\nservers: {servers}\n")
    done = plan("solve", "--model", model, "--cluster", cluster, *WSP, "--allocation", "ed", "--quiet", "-o", path)
    assert done.exit_code == 0, done.output
    assert "throughput        unlimited" in done.stdout
    assert plan("check", path).exit_code == 0
    assert plan("compare", "--model", model, "--cluster", cluster, *WSP, "--quiet").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--clock-distance", "-1"), "job: clock_distance must be a whole number of at least 0, got -1"),
        (("--in-flight", "-4"), "job: in_flight must be a whole number of at least 1, got -4"),
        (("--in-flight", "0"), "job: in_flight must be a whole number of at least 1, got 0"),
        (("--workers", "0"), "job: num_workers must be a whole number of at least 1, got 0"),
        (("--workers", "5"), "job: num_workers must be at most 4, the devices of cluster 'tiny-2x2', got 5"),
        (("--workers", "3", "--allocation", "np"), "job: num_workers must be auto or 2, which is what allocation np"),
    ],
)
def test_choices_that_nothing_can_have_are_bad_input(plan, through_waves, tmp_path, arguments, complaint):
    done = plan("solve", *through_waves, "--quiet", *arguments, "-o", tmp_path / "plan.json")
    assert (done.exit_code, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert complaint in line
    assert list(tmp_path.iterdir()) == []


def test_minibatches_in_flight_that_fit_nowhere_are_infeasible_with_numbers(plan, plan_json, through_waves):
    arguments = (*through_waves, "--in-flight", "100000", "--allocation", "np")
    answer = plan_json("solve", *arguments, exit_code=4)
    assert (answer["status"], answer["plan"]) == ("infeasible", None)
    said = plan("solve", *arguments, "--quiet").stdout
    assert "needs 4 TB with 100000 in flight, and the largest device, V100, has 16 GB" in said


@pytest.mark.parametrize("target", ["megatron", "torchtitan", "deepspeed"])
def test_exports_refuse_workers_with_the_reason(plan, solved, target):
    done = plan("convert", solved[0], "--to", target)
    assert (done.exit_code, done.stdout) == (3, "")
    assert f"{target} cannot express virtual workers that train through waves" in done.stderr


def test_explain_tells_waits_and_what_one_more_unit_brings(plan, plan_json, solved):
    """Each unit is planned for anew: no gain is above what its bound allows."""
    path, answer = solved
    said = plan_json("explain", path, "--what-if", "memory,nic")
    first, *units = said["what_if"]
    assert (first["what"], first["samples_per_s"]) == ("nothing more", answer["samples_per_s"])
    assert [each["unit"] for each in units] == ["memory", "nic"]
    assert all(each["gained_share"] <= each["gained_share_at_most"] + 1e-9 for each in units)
    assert said["complete"]
    shown = plan("explain", path, "--what-if", "nic", "--quiet").stdout
    assert "waits at gates" in shown
    assert "interfaces of every server twice as fast" in shown


def test_explain_has_no_solvers_for_workers(plan, solved):
    done = plan("explain", solved[0], "--solver", "dp")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "'--solver': no effect with '--synchronisation wsp'" in done.stderr


def test_keys_of_answers_about_workers_are_on_the_page(plan_json, solved, through_waves):
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    path, answer = solved
    answers = (
        answer,
        plan_json("solve", *through_waves, "--dry-run"),
        plan_json("simulate", path),
        plan_json("check", path, "--prove"),
        plan_json("compare", *through_waves, "--in-flight", "1"),
        plan_json("explain", path, "--what-if", "fabric"),
    )
    assert {key for each in answers for key in keys(each) if f"`{key}`" not in page} == set()


def keys(tree):
    """Every key that is not inside a plan, a job, or a table of counts or names."""
    opaque = {"plan", "waves", "counts", "step_seconds", "versions", "options", "input_hashes"}
    if isinstance(tree, list):
        return {key for item in tree for key in keys(item)}
    if isinstance(tree, dict):
        return set(tree) | {inner for key, item in tree.items() if key not in opaque for inner in keys(item)}
    return set()


def changed(path, folder, steps, value):
    """A copy of a plan file with one number changed."""
    tree = json.loads(path.read_text())
    place = tree
    for step in steps[:-1]:
        place = place[step]
    place[steps[-1]] = value
    copy = folder / "changed.json"
    copy.write_text(json.dumps(tree))
    return copy
