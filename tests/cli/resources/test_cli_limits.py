"""Chains of many layers, and limits of time and memory on the command line."""

import json
import math
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import click
import pytest

from stagecut.planner.cli.options.outputs import Pictures
from stagecut.planner.cli.options.solve import LEAST_SEARCH_S, TimeBudget
from stagecut.planner.cli.process.lazy_group import STARTED_S
from stagecut.planner.core.problem import MAX_LAYERS
from stagecut.planner.io.files.plan_file import read_plan_file

ROOT = Path(__file__).parents[3]
NO_PICTURES = Pictures(trace=None, gantt=None, force=False)


@pytest.fixture(scope="session")
def long_chain(tmp_path_factory):
    """Write a profile of so many layers, timed on both kinds of device of examples/tiny; the path."""
    folder = tmp_path_factory.mktemp("long")

    def write(num_layers):
        times = {"V100": {"1": 0.001, "2": 0.002}, "T4": {"1": 0.003, "2": 0.006}}
        layers = [
            {"name": f"layer-{index}", "params_bytes": 1e4, "saved_bytes": 1e5, "output_bytes": 1e5 + index % 7}
            | {"forward_s": times, "backward_s": times}
            for index in range(num_layers)
        ]
        path = folder / f"long-{num_layers}.json"
        path.write_text(json.dumps({"schema": 1, "name": "long", "layers": layers}))
        return path

    return write


def on_tiny(profile, folder):
    return ("--model", profile, "--cluster", folder / "cluster.yaml", "--global-batch", "8")


def test_a_chain_too_long_is_refused_and_the_message_helps(plan, plan_json, long_chain, tiny_folder, tmp_path):
    """The command that the message names makes a profile with a plan; totals stay: 1,200 x 1e4 bytes, 1.2 s forward."""
    path, merged = long_chain(1_200), tmp_path / "merged.json"
    refused = plan("solve", *on_tiny(path, tiny_folder))
    assert refused.exit_code == 3
    assert f"{path}:1: layers: must be at most {MAX_LAYERS:,}" in refused.stderr
    assert "got 1,200" in refused.stderr
    words = refused.stderr.partition("merge neighbours: plan ")[2].partition(")")[0].split()
    assert words == ["convert", "PROFILE", "--max-layers", str(MAX_LAYERS), "-o", "FILE"]
    command = [{"PROFILE": path, "FILE": merged}.get(word, word) for word in words]
    answer = plan_json(*command)
    assert (answer["format"], answer["name"], answer["num_nodes"]) == ("profile", "long", 1_200)
    assert answer["num_layers"] == MAX_LAYERS
    assert answer["params_bytes"] == pytest.approx(1_200 * 1e4)
    v100 = next(times for times in answer["device_types"] if times["device_type"] == "V100")
    assert v100["forward_s"] == pytest.approx(1.2)
    assert plan("solve", *on_tiny(merged, tiny_folder), "--dry-run").exit_code == 0


def test_a_catalogue_model_too_long_is_refused_alike(plan):
    done = plan("solve", "--model", "synthetic:1:1500", "--cluster", "hetpipe-16", "--global-batch", "16")
    assert done.exit_code == 3
    assert "model 'synthetic:1:1500': layers must be at most" in done.stderr


def test_options_for_foreign_files_do_not_go_with_a_profile(plan, long_chain, tmp_path):
    path = long_chain(20)
    done = plan(
        "convert", path, "--max-layers", "5", "--micro-batch", "4", "--precision", "fp16", "-o", tmp_path / "p.json"
    )
    assert done.exit_code == 2
    assert "--micro-batch, --precision" in done.stderr
    assert not (tmp_path / "p.json").exists()


def test_people_are_told_what_was_merged(plan, long_chain, tmp_path):
    done = plan("convert", long_chain(20), "--max-layers", "5", "--name", "short", "-o", tmp_path / "p.json")
    assert "short: 5 layers from 20 layers of a profile" in done.stdout


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell the memory in use")
def test_memory_stays_within_the_limit(long_chain, tiny_folder):
    """800 layers would take 600 MB to prove. The limit is looked at every 20 ms: a little more is held by then.

    The peak is that of this program; `getrusage` counts the process too that started it.
    """
    limit_mb, slack_mb = 250, 80
    arguments = on_tiny(long_chain(800), tiny_folder)
    command = ["solve", *map(str, arguments), "--memory-limit", f"{limit_mb}MB", "--time-limit", "60", "--quiet"]
    script = (
        "import re, sys\n"
        "from pathlib import Path\n"
        "from stagecut.planner.cli.main import main\n"
        "try:\n    main(sys.argv[1:], prog_name='plan')\n"
        "finally:\n"
        "    print(re.search(r'VmHWM:\\s*(\\d+)', Path('/proc/self/status').read_text())[1], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert "when the memory limit was reached" in done.stdout
    assert done.returncode in {0, 5}
    assert int(done.stderr.split()[-1]) * 1024 < (limit_mb + slack_mb) * 1e6


def budget(limit_s, *, running_s, compares=True, pictures=NO_PICTURES):
    """The time and memory limits of a command that has been running for this long."""
    context = click.Context(click.Command("solve"))
    context.meta[STARTED_S] = time.perf_counter() - running_s
    return TimeBudget(context, math.inf if limit_s is None else limit_s, pictures, compares=compares)


def test_a_time_limit_counts_from_the_start_of_the_command():
    assert budget(1000.0, running_s=100.0).spent_s == pytest.approx(100.0, abs=10)
    assert budget(None, running_s=100.0).spent_s == pytest.approx(100.0, abs=10)


def test_a_search_has_a_moment_even_where_starting_took_the_limit():
    assert budget(1.0, running_s=100.0).spent_s == 1.0 - LEAST_SEARCH_S
    assert budget(0.1, running_s=100.0).spent_s == 0.0


def test_time_is_kept_for_the_even_split_and_the_pictures(plan_file, tmp_path):
    """A tenth of 10 s, 2 s of 1,000 s, none for `even` itself; with pictures what these take."""
    found = read_plan_file(plan_file).plan
    played_s = NO_PICTURES.seconds(found)
    assert budget(10.0, running_s=0.0).answer_s(found) == pytest.approx(1.0 + played_s)
    assert budget(1000.0, running_s=0.0).answer_s(found) == pytest.approx(2.0 + played_s)
    assert budget(20.0, running_s=0.0, compares=False).answer_s(found) == played_s
    drawn = replace(NO_PICTURES, gantt=tmp_path / "plan.svg", trace=tmp_path / "trace.json")
    assert budget(20.0, running_s=0.0, pictures=drawn).answer_s(found) > 3.0 + played_s


def test_the_even_split_has_what_is_left_of_the_limit(plan_file):
    """10 s at most, and none once the limit is reached: it is not compared then."""
    found = read_plan_file(plan_file).plan
    assert budget(None, running_s=0.0).even_split_s(found) == 10.0
    assert budget(1000.0, running_s=0.0).even_split_s(found) == 10.0
    assert budget(1000.0, running_s=1000.0).even_split_s(found) <= 0.0
