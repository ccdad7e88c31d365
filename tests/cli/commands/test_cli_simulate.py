"""`plan simulate`."""

import json


def test_stages_bubbles_and_critical_path_are_shown(plan, plan_file):
    done = plan("simulate", plan_file)
    assert done.exit_code == 0
    for words in ("memory used", "busy", "bubbles", "on the critical path"):
        assert words in done.stdout
    assert done.stderr == ""


def test_json_agrees_with_the_plan_file(plan_json, plan_file):
    played, stated = plan_json("simulate", plan_file), json.loads(plan_file.read_text())["predicted"]
    assert played["iteration_s"] == stated["iteration_s"]
    assert [stage["forward_s"] for stage in played["stages"]] == [stage["forward_s"] for stage in stated["stages"]]
    assert played["critical_path"][0]["start_s"] == 0
    assert played["critical_path"][-1]["end_s"] == played["iteration_s"]


def test_bubbles_are_what_the_stages_leave(plan_json, plan_file):
    played = plan_json("simulate", plan_file)
    shares = [stage["busy_share"] for stage in played["stages"]]
    assert abs(played["bubble_fraction"] - (1 - sum(shares) / len(shares))) < 1e-12


def test_files_are_written_once(plan, plan_file, tmp_path):
    trace, chart = tmp_path / "trace.json", tmp_path / "chart.png"
    assert plan("simulate", plan_file, "--trace", trace, "--gantt", chart).exit_code == 0
    assert chart.read_bytes().startswith(b"\x89PNG")
    before = trace.read_bytes()
    assert plan("simulate", plan_file, "--trace", trace).exit_code == 3
    assert plan("simulate", plan_file, "--trace", trace, "--force").exit_code == 0
    assert trace.read_bytes() == before
