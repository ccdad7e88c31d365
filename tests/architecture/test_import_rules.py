"""Promises about who imports what."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _imported_by(module: str) -> set[str]:
    """Top-level packages in `sys.modules` after importing one module in a fresh interpreter."""
    code = f"import json, sys, {module}; print(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("module", ["stagecut", "stagecut.planner", "stagecut.executor", "stagecut.models"])
def test_importing_a_package_costs_nothing_heavy(module):
    assert _imported_by(module) & {"torch", "highspy", "pulp", "click", "pydantic", "matplotlib"} == set()


@pytest.mark.parametrize(
    "module",
    [
        "stagecut.planner.solvers.search.search",
        "stagecut.planner.report.gantt",
        "stagecut.planner.report.tables",
        "stagecut.models.modules.module_chain",
        "stagecut.models.hugging_face",
    ],
)
def test_heavy_libraries_are_imported_where_they_are_used(module):
    assert _imported_by(module) & {"torch", "highspy", "pulp", "click", "pydantic", "matplotlib"} == set()


def test_the_command_line_starts_without_torch_and_highspy():
    assert _imported_by("stagecut.planner.cli.main") & {"torch", "highspy", "pulp", "matplotlib"} == set()


def test_import_contracts_hold():
    """The contracts are in pyproject.toml: imports go down only, and each heavy library has one door."""
    script = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    command = [sys.executable, "-c", script, "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
