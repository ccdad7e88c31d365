"""`plan check`."""

import json
import threading

import pytest

from stagecut.planner.analysis.recheck import recheck
from stagecut.planner.analysis.reproof import ClaimOutcome, prove_again
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.files.plan_file import plan_file_of, read_plan_file, to_tree


def stage(tree, index=0):
    return tree["plan"]["pipelines"][0]["stages"][index]


def options(tree):
    return tree["provenance"]["options"]


def by_solver(tree, name):
    tree["certificate"]["solver"] = options(tree)["solver"] = name


def claim(tree, bound_s):
    """Have the file claim this bound, with the gap and the status that follow."""
    certificate = tree["certificate"]
    gap = (certificate["objective_s"] - bound_s) / certificate["objective_s"]
    certificate.update(bound_s=bound_s, gap=gap, status="optimal" if gap <= options(tree)["gap"] else "feasible")


def test_a_fresh_plan_agrees(plan, plan_json, plan_file):
    """3 hashes, the iteration time, 7 numbers of each of 2 stages, solver, objective and gap: 21."""
    done = plan("check", plan_file)
    assert done.exit_code == 0
    assert "agree" in done.stdout
    outcome = plan_json("check", plan_file)
    assert (outcome["agrees"], outcome["num_checks"]) == (True, 21)
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
        (lambda tree: tree["certificate"].update(bound_s=9e9, gap=0.0), "above the plan's own time"),
        (lambda tree: tree["certificate"].update(bound_s=None, gap=None), "optimal without a bound"),
        (lambda tree: tree["certificate"].update(bound_s=0.0, gap=1.0), "optimal with a gap of 1"),
        (lambda tree: tree["certificate"].update(status="feasible"), "that is optimal"),
        (lambda tree: tree["certificate"].update(status="interrupted"), "that is optimal"),
        (lambda tree: by_solver(tree, "mlip"), "there is no solver 'mlip', did you mean 'milp'?"),
        (lambda tree: by_solver(tree, "greedy"), "states a bound, but greedy proves none"),
        (lambda tree: by_solver(tree, "piper"), "states a bound, but piper proves none"),
        (lambda tree: options(tree).update(gap=1.0), "gap must be below 1"),
        (lambda tree: options(tree).update(gap=1e-9), "optimal with a gap of"),
        (lambda tree: options(tree).update(gap="1e-4"), "gap must be a number, got '1e-4'"),
        (lambda tree: options(tree).update(gap=True), "gap must be a number, got True"),
        (lambda tree: options(tree).update(time_limit_s=0), "time_limit_s must be a positive number"),
        (lambda tree: options(tree).update(memory_limit_bytes=0.0), "memory_limit_bytes must be a positive number"),
        (lambda tree: options(tree).update(rows="some"), "rows must be one of shared, all, got 'some'"),
        (lambda tree: options(tree).update(threads=0), "threads must be a whole number from 1 to 1024"),
        (lambda tree: options(tree).update(threads=1.5), "threads must be a whole number from 1 to 1024"),
        (lambda tree: options(tree).update(time_limit=60.0), "no option 'time_limit', did you mean 'time_limit_s'?"),
        (lambda tree: tree["provenance"].update(seed=2**31), "seed must be at most 2147483647"),
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
    assert "expected a plan file, got a job file" in done.stderr


def test_the_solver_is_the_one_of_the_options(plan_json, changed_plan):
    path = changed_plan(lambda tree: tree["certificate"].update(solver="dp"))
    outcome = plan_json("check", path, exit_code=6)
    (found,) = outcome["differences"]
    assert found == {"where": "certificate.solver", "stated": "dp", "derived": "milp"}


def test_what_is_not_checked_is_said(plan, plan_json, changed_plan):
    """Bound, gap and status agree with each other; whether the bound holds, nothing in the file tells."""
    path = changed_plan(lambda tree: claim(tree, tree["certificate"]["objective_s"]))
    done = plan("check", path)
    assert done.exit_code == 0
    assert "not checked: certificate.bound_s: claimed by milp; --prove proves it again" in done.stdout
    outcome = plan_json("check", path)
    assert [item["where"] for item in outcome["unchecked"]] == ["certificate.bound_s", "provenance"]
    assert outcome["proof"] is None


def test_a_plan_without_a_bound_has_none_to_prove(plan_json, plan, tiny, tmp_path):
    path = tmp_path / "even.json"
    assert plan("solve", *tiny, "--solver", "even", "--quiet", "-o", path).exit_code == 0
    outcome = plan_json("check", path, "--prove")
    assert outcome["agrees"]
    assert outcome["proof"] is None
    assert [item["where"] for item in outcome["unchecked"]] == ["certificate.status", "provenance"]


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99, 1.0])
def test_a_bound_that_holds_is_proven_again(plan, plan_json, changed_plan, share):
    """Any share of the time of the optimal plan is a bound."""
    path = changed_plan(lambda tree: claim(tree, share * tree["certificate"]["objective_s"]))
    proof = plan_json("check", path, "--prove", "--time-limit", "none")["proof"]
    assert proof["outcome"] == "proven"
    assert (proof["bound_s"] or 0.0) >= proof["claimed_s"] * (1 - 1e-9)
    assert "is proven again, by milp" in plan("check", path, "--prove", "--quiet").stdout


@pytest.fixture
def even_plan(plan, tiny, tmp_path):
    """The even split, of which the file says that milp proved it optimal; it is 2.16 times slower than that."""
    path = tmp_path / "even.json"
    assert plan("solve", *tiny, "--solver", "even", "--quiet", "-o", path).exit_code == 0
    tree = json.loads(path.read_text())
    by_solver(tree, "milp")
    claim(tree, tree["certificate"]["objective_s"])
    path.write_text(json.dumps(tree))
    return path


def test_a_bound_that_a_plan_beats_is_refuted(plan, plan_json, even_plan):
    assert plan("check", even_plan).exit_code == 0
    done = plan("check", even_plan, "--prove", "--quiet")
    assert done.exit_code == 6
    assert "is refuted: milp found a plan of" in done.stdout
    assert done.stderr == ""
    outcome = plan_json("check", even_plan, "--prove", exit_code=6)
    assert (outcome["agrees"], outcome["proof"]["outcome"]) == (False, "refuted")
    assert outcome["proof"]["objective_s"] < outcome["proof"]["claimed_s"]
    assert [item["where"] for item in outcome["unchecked"]] == ["provenance"]


def test_a_bound_that_takes_longer_than_the_limit_stays_open(plan, plan_json, plan_file):
    done = plan("check", plan_file, "--prove", "--time-limit", "1e-9")
    assert done.exit_code == 5
    assert "is not proven again: milp proved nothing" in done.stdout
    assert "until the time limit" in done.stdout
    outcome = plan_json("check", plan_file, "--prove", "--time-limit", "1e-9", exit_code=5)
    assert outcome["proof"]["stopped_by"] == "time limit"
    assert "certificate.bound_s" in [item["where"] for item in outcome["unchecked"]]


def test_a_difference_counts_more_than_a_proof(plan, changed_plan):
    path = changed_plan(lambda tree: tree["predicted"].update(iteration_s=1.0))
    assert plan("check", path, "--prove").exit_code == 6


def test_a_proof_can_be_interrupted(plan_file):
    stated, cancelled = read_plan_file(plan_file), threading.Event()
    cancelled.set()
    proof = prove_again(
        stated,
        stated.certificate.bound_s,
        iteration_s=stated.predicted.iteration_s,
        time_limit_s=None,
        observer=lambda _: None,
        cancelled=cancelled,
    )
    assert proof.outcome is ClaimOutcome.INTERRUPTED


def test_a_better_plan_on_the_way_is_no_end(changed_plan, even_plan, plan_file):
    """The plan takes 2.16 times the optimum, the claim is 1e-5 below the optimum: a gap of 54 %.

    The search closes such a gap as soon as it has a good plan, long before it has proven the claim.
    """
    optimum_s = json.loads(plan_file.read_text())["certificate"]["objective_s"]
    tree = json.loads(even_plan.read_text())
    options(tree)["gap"] = 0.9
    claim(tree, optimum_s * (1 - 1e-5))
    even_plan.write_text(json.dumps(tree))
    stated = read_plan_file(even_plan)
    proof = prove_again(
        stated,
        stated.certificate.bound_s,
        iteration_s=stated.predicted.iteration_s,
        time_limit_s=None,
        observer=lambda _: None,
        cancelled=threading.Event(),
    )
    assert proof.outcome is ClaimOutcome.PROVEN
    assert proof.result.objective_s == pytest.approx(optimum_s, rel=1e-4)


def test_a_time_limit_without_a_proof_is_wrong_usage(plan, plan_file):
    done = plan("check", plan_file, "--time-limit", "5")
    assert done.exit_code == 2
    assert "give --prove too" in done.stderr


def places(tree, prefix=()):
    """Every place of a tree but what lies deep in the inputs, whose hashes are checked."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for step, child in items:
        yield (*prefix, step)
        if prefix[:1] != ("inputs",):
            yield from places(child, (*prefix, step))


def changed_values(value):
    """Others that could stand in its place."""
    if isinstance(value, bool):
        return (not value, None)
    if isinstance(value, int | float):
        return (value + 1 if isinstance(value, int) else value * 1.001, 2 * value, 0, None)
    if isinstance(value, list):
        return (value[:-1], [*value, *value[-1:]], None)
    others = {"optimal": "feasible", "1f1b": "gpipe", "milp": "greedy"}
    return (f"{value}x", others.get(value, ""), None) if isinstance(value, str) else ({}, None)


TRUSTED = ("certificate.seconds", "provenance.versions", "provenance.seed", "provenance.options")


def test_every_change_is_noticed_or_said_to_be_unchecked(plan_file):
    """Nothing passes that the check does not list as unchecked."""
    text = plan_file.read_text()
    for *above, last in places(json.loads(text)):
        where = ".".join(map(str, (*above, last)))
        tree = json.loads(text)
        parent = tree
        for step in above:
            parent = parent[step]
        for value in changed_values(parent[last]):
            parent[last] = value
            try:
                changed = plan_file_of(parse_document(json.dumps(tree), file="plan.json"))
            except BadInputError:
                continue
            if to_tree(changed) != json.loads(text) and recheck(changed).agrees:
                assert where.startswith(TRUSTED), (where, value)
