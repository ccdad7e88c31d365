"""The page of tolerances."""

import ast
from pathlib import Path

from stagecut.planner.core.numerics import tolerances


def test_every_tolerance_has_a_name_of_its_own():
    """A second one of the same name would silently replace the first."""
    page = ast.parse(Path(tolerances.__file__).read_text())
    names = [target.id for node in page.body if isinstance(node, ast.Assign) for target in node.targets]
    assert sorted(names) == sorted(set(names))
