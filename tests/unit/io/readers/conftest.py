"""Files of other planners, read."""

import json
from pathlib import Path

import pytest

from stagecut.planner.io.readers.conversion import Choices
from stagecut.planner.io.readers.formats import TIME_UNITS, convert, open_foreign

FOREIGN = Path(__file__).parents[3] / "regression" / "data" / "foreign"


@pytest.fixture(scope="session")
def foreign():
    """The folder with a small file of each format, of our own figures."""
    return FOREIGN


@pytest.fixture
def read():
    """Read files, the devices called by the files' names; options change what they leave open."""

    def run(*paths, bytes_from=None, **options):
        files = [open_foreign(str(path)) for path in paths]
        kind = files[0].format
        defaults = {"name": "model", "time_unit": TIME_UNITS[kind]}
        choices = [Choices(**{**defaults, "device_type": Path(path).stem, **options}) for path in paths]
        return convert(files, kind, choices, bytes_from=bytes_from)

    return run


@pytest.fixture
def changed(tmp_path):
    """Write a JSON file with a change made to its tree; the path."""

    def write(path, change):
        tree = json.loads(path.read_text())
        change(tree)
        target = tmp_path / path.name
        target.write_text(json.dumps(tree, indent=1))
        return target

    return write
