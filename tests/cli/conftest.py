"""The command line in this process, and a problem small enough to solve at once."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from stagecut.planner.cli.main import main

TINY = Path(__file__).parents[2] / "examples" / "tiny"


@pytest.fixture(scope="session")
def plan():
    """Run `plan` with these arguments; the result has exit_code, stdout and stderr."""

    def run(*arguments):
        return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="plan")

    return run


@pytest.fixture(scope="session")
def plan_json(plan):
    """The same with --json; the JSON object, after a look at the exit code."""

    def run(*arguments, exit_code=0):
        done = plan(*arguments, "--json")
        assert done.exit_code == exit_code, done.output
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def tiny():
    """Arguments that make the problem of examples/tiny: two fast and two slow devices, 32 samples, one pipeline."""
    files = ("--model", TINY / "profile.yaml", "--cluster", TINY / "cluster.yaml", "--job", TINY / "job.yaml")
    return *files, "--pipelines", "1"


@pytest.fixture(scope="session")
def tiny_folder():
    return TINY


@pytest.fixture(scope="session")
def plan_file(plan, tiny, tmp_path_factory):
    """The plan file of the tiny problem."""
    path = tmp_path_factory.mktemp("solved") / "plan.json"
    assert plan("solve", *tiny, "--quiet", "-o", path).exit_code == 0
    return path


@pytest.fixture
def changed_plan(plan_file, tmp_path):
    """Write the plan file of the tiny problem with a change made to its tree; the path."""

    def write(change):
        tree = json.loads(plan_file.read_text())
        change(tree)
        path = tmp_path / "changed.json"
        path.write_text(json.dumps(tree))
        return path

    return write
