"""Fixtures of the tests that start processes."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from stagecut.planner.cli.main import main

TINY = Path(__file__).parents[2] / "examples" / "tiny"


@pytest.fixture(scope="session")
def two_stages(tmp_path_factory):
    """A plan file of two stages on a device each: the tiny problem with one device of each kind."""
    folder = tmp_path_factory.mktemp("two_stages")
    cluster, path = folder / "cluster.yaml", folder / "plan.json"
    cluster.write_text((TINY / "cluster.yaml").read_text().replace("count: 2", "count: 1"))
    files = ("--model", TINY / "profile.yaml", "--cluster", cluster, "--job", TINY / "job.yaml", "-o", path)
    done = CliRunner().invoke(main, ["solve", "--quiet", *map(str, files)])
    assert done.exit_code == 0, done.output
    return path
