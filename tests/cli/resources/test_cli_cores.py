"""Searches on machines with more cores than this one may have."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROBLEM = ("--model", "vgg16", "--cluster", "mixed-server-8", "--global-batch", "32", "--quiet")
"""Its search needs linear programs, then mixed-integer ones, and ends by itself."""
NOTICE = (
    "import highspy\n"
    "for threads in (0, 1):\n"
    "    highs = highspy.Highs()\n"
    "    highs.setOptionValue('output_flag', False)\n"
    "    highs.setOptionValue('threads', threads)\n"
    "    highs.addVar(0, 1)\n"
    "    print(highs.run() == highspy.HighsStatus.kOk)\n"
)
"""Left alone HiGHS takes half of the cores, and then refuses a single thread; with one or two cores it does not."""


@pytest.fixture(scope="module")
def with_cores(tmp_path_factory):
    """The environment of a process that sees so many cores."""
    compiler, folder = shutil.which("cc") or shutil.which("gcc"), tmp_path_factory.mktemp("cores")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("cores are emulated by a preloaded library: that takes Linux and a C compiler")

    def environment(cores):
        source, library = folder / f"{cores}.c", folder / f"{cores}.so"
        source.write_text(f"int get_nprocs(void) {{ return {cores}; }}\n")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
        environment = os.environ | {"LD_PRELOAD": str(library)}
        noticed = subprocess.run(
            [sys.executable, "-c", NOTICE], env=environment, capture_output=True, text=True, check=True
        )
        if noticed.stdout.split() != ["True", "False"]:
            pytest.skip("HiGHS learns the number of cores in another way here")
        return environment

    return environment


@pytest.fixture(scope="module")
def here(plan, tmp_path_factory):
    """The plan of this process."""
    path = tmp_path_factory.mktemp("here") / "plan.json"
    assert plan("solve", *PROBLEM, "-o", path).exit_code == 0
    return path


def test_plan_is_the_same_whatever_the_cores(here, with_cores, tmp_path):
    there = tmp_path / "there.json"
    command = [sys.executable, "-m", "stagecut", "solve", *PROBLEM, "-o", str(there)]
    done = subprocess.run(command, cwd=ROOT, env=with_cores(16), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert there.read_bytes() == here.read_bytes()


def test_any_number_of_threads_gives_a_proven_plan(plan_json):
    """The numbers of threads are tried one after another in one process."""
    answers = [plan_json("solve", *PROBLEM, "--threads", threads) for threads in (4, 1)]
    assert {answer["status"] for answer in answers} == {"optimal"}
    assert {json.dumps(answer["plan"]) for answer in answers} == {json.dumps(answers[0]["plan"])}


def test_solvers_compared_share_a_process_and_no_threads(plan_json):
    """Some go to HiGHS through PuLP, some directly, for linear programs and for others."""
    answer = plan_json("compare", *PROBLEM, "--threads", "3", "--solvers", "autopipe-h,milp,hetpipe,dp")
    assert [row["fault"] for row in answer["results"]] == [None] * 4
    assert all(row["objective_s"] for row in answer["results"])
