"""`plan estimate`, and prices."""

import json

import pytest


@pytest.fixture
def tiny_layout(tiny_folder):
    """Inputs of the tiny problem, without a job: batches of 32 samples in micro-batches of 1."""
    files = ("--model", tiny_folder / "profile.yaml", "--cluster", tiny_folder / "cluster.yaml")
    return "estimate", *files, "--global-batch", "32"


LLAMA = ("estimate", "--model", "llama3-8b", "--cluster", "a100-v100-32", "--global-batch", "64")


def test_a_layout_by_hand_is_shown_with_memory_and_throughput(plan):
    done = plan(*LLAMA, "--micro-batch", "2", "--stages", "4", "--tensor-parallel", "4", "--pipelines", "2")
    assert done.exit_code == 0, done.output
    for words in ("2 pipelines on", "optimizer", "tokens per second", "of the peak of 32 devices", "fits in memory: "):
        assert words in done.stdout
    assert done.stderr == ""


def test_a_layout_that_does_not_fit_has_its_time_and_what_would_help(plan, plan_json):
    arguments = (*LLAMA, "--stages", "4")
    answer = plan_json(*arguments, exit_code=4)
    assert answer["fits"] is False
    assert answer["iteration_s"] > 0
    first = answer["stages"][answer["short_stages"][0]["stage"]]
    assert answer["short_stages"][0]["short_bytes"] == first["memory_bytes"] - first["limit_bytes"]
    done = plan(*arguments)
    assert done.exit_code == 4
    assert "does not fit in memory: stage" in done.stdout
    assert "it would fit with" in done.stdout
    helpful = answer["changes"][0]
    again = plan_json(*arguments, *helpful["options"].split())
    assert again["fits"] is True
    assert again["iteration_s"] == helpful["iteration_s"]


def test_a_plan_file_is_estimated_as_it_is_simulated(plan, plan_json, plan_file):
    estimated, simulated = plan_json("estimate", plan_file), plan_json("simulate", plan_file)
    assert estimated == simulated | {"fits": True, "short_stages": [], "changes": []}
    assert "fits in memory" in plan("estimate", plan_file).stdout


def test_a_plan_file_that_does_not_fit_has_exit_code_4(plan, changed_plan):
    def shrink(tree):
        for kind in tree["inputs"]["cluster"]["device_types"]:
            kind["memory_bytes"] = 1e6

    done = plan("estimate", changed_plan(shrink))
    assert done.exit_code == 4
    assert "does not fit in memory" in done.stdout
    assert "plan solve" in done.stdout


def test_pictures_are_written(plan, plan_file, tmp_path):
    chart = tmp_path / "chart.svg"
    assert plan("estimate", plan_file, "--gantt", chart).exit_code == 0
    assert chart.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("options", "exit_code", "message"),
    [
        ((), 2, "Missing option '--stages', or '--cuts'"),
        (("--cuts", "0,x"), 2, "'x' is not a whole number; write 4 or 0,8,16,24"),
        (("--cuts", "0,0"), 3, "cuts must be one first layer per stage"),
        (("--stages", "2", "--chunks", "2"), 2, "'--chunks' needs '--schedule interleaved'"),
        (("--stages", "2", "--servers", "nowhere"), 3, "servers must be some of"),
        (("--stages", "2", "--pipelines", "3"), 3, "equal shares of the cluster"),
        (("--stages", "2", "--micro-batch", "3"), 3, "divides the global batch 32, got (3,)"),
        (("--stages", "2", "--price-per-hour", "fast"), 2, "'fast' is not a price; write NAME=PRICE"),
        (("--stages", "2", "--price-per-hour", "x=1,x=2"), 2, "'x' has two prices"),
        (("--stages", "2", "--price-per-hour", "x=-1"), 2, "'x=-1' is not a price"),
        (("--stages", "2", "--price-per-hour", "x=1"), 3, "'x' is neither a device type nor a server"),
    ],
)
def test_wrong_layouts_get_one_message(plan, tiny_layout, options, exit_code, message):
    done = plan(*tiny_layout, *options)
    assert done.exit_code == exit_code
    assert done.stderr.count("Error: ") == 1
    assert message in done.stderr
    assert done.stdout == ""


def test_inputs_are_needed_without_a_plan_file_and_refused_with_one(plan, plan_file):
    done = plan("estimate")
    assert done.exit_code == 2
    assert "Missing option '--model', or a plan file" in done.stderr
    done = plan("estimate", plan_file, "--stages", "2", "--zero1")
    assert done.exit_code == 2
    assert "'--stages', '--zero1': no effect with a plan file" in done.stderr


def test_prices_of_the_command_line_make_a_price(plan, plan_json, plan_file):
    """The plan uses both V100 and both T4: 2 x 2 + 2 x 1 an hour, or 7 + 2 x 1 with a price of the V100s' server."""
    for prices, price_per_hour in (("V100=2,T4=1", 6.0), ("fast=7,V100=2,T4=1", 9.0)):
        answer = plan_json("simulate", plan_file, "--price-per-hour", prices)
        assert answer["price_per_hour"] == price_per_hour
        samples_per_hour = 3600 * answer["samples_per_s"]
        assert answer["price_per_million_samples"] == pytest.approx(1e6 * price_per_hour / samples_per_hour)
        assert answer["price_per_million_tokens"] == pytest.approx(answer["price_per_million_samples"] / 512)
    assert "6 per hour" in plan("simulate", plan_file, "--price-per-hour", "V100=2,T4=1").stdout
    assert "unknown: no price_per_hour of T4" in plan("simulate", plan_file, "--price-per-hour", "V100=2").stdout
    assert "price" not in plan("simulate", plan_file).stdout


def test_prices_go_into_the_plan_file(plan, plan_json, tiny, tmp_path):
    path = tmp_path / "priced.json"
    assert plan("solve", *tiny, "--price-per-hour", "V100=2.5,slow=1", "-o", path).exit_code == 0
    cluster = json.loads(path.read_text())["inputs"]["cluster"]
    assert [kind.get("price_per_hour") for kind in cluster["device_types"]] == [2.5, None]
    assert [server.get("price_per_hour") for server in cluster["servers"]] == [None, 1.0]
    assert plan("check", path).exit_code == 0
    assert plan_json("simulate", path)["price_per_hour"] == 2 * 2.5 + 1.0


def test_solve_shows_what_fills_the_memory_if_asked(plan, tiny):
    assert "gradients" not in plan("solve", *tiny, "--solver", "even").stdout
    assert "gradients" in plan("solve", *tiny, "--solver", "even", "-v").stdout
