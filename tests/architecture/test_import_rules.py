"""Promises about who imports what."""

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


FOLDERS = ("planner", "executor", "models", "benchmarks", "tests")


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


def _modules_of(path: Path) -> set[str]:
    """What a file imports: modules, and names in modules, which may be modules too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@cache
def _folder_of(module: str) -> Path:
    """The innermost folder of the repository that a module or a name in it belongs to."""
    path = ROOT.joinpath(*module.removeprefix("stagecut.").split("."))
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def test_no_two_folders_import_each_other():
    """The folder of a package and each of its sub-folders count as different ones."""
    files = [path for name in FOLDERS for path in (ROOT / name).rglob("*.py")]
    edges = {(path.parent, _folder_of(module)) for path in files for module in _modules_of(path)}
    mutual = {(str(a.relative_to(ROOT)), str(b.relative_to(ROOT))) for a, b in edges if a < b and (b, a) in edges}
    assert mutual == set()
