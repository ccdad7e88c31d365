"""Promises about the source files themselves."""

import ast
import tokenize
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("planner", "executor", "models")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "base"}

Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _undocumented(body: list[ast.stmt]) -> list[str]:
    """Names of public functions and classes without a docstring, methods of public classes included."""
    public = [node for node in body if isinstance(node, Documented) and not node.name.startswith("_")]
    missing = [node.name for node in public if ast.get_docstring(node) is None and not _is_exempt(node)]
    inner = [name for node in public if isinstance(node, ast.ClassDef) for name in _undocumented(node.body)]
    return missing + inner


def _is_exempt(node: Documented) -> bool:
    """Overloads, and entries that have the docstring of the dataclass that they mirror."""
    decorators = [item.func if isinstance(item, ast.Call) else item for item in node.decorator_list]
    return any(isinstance(item, ast.Name) and item.id in {"overload", "mirrors"} for item in decorators)


def test_no_file_is_longer_than_600_lines():
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in SOURCES + TESTS + BENCHMARKS}
    assert {path: length for path, length in lengths.items() if length > 600} == {}


def test_no_module_has_a_vague_name():
    names = [path.relative_to(ROOT) for path in SOURCES + TESTS + BENCHMARKS]
    assert [path for path in names if VAGUE_NAMES & {path.stem, *path.parts}] == []


def test_no_two_test_files_share_a_basename():
    """Pytest imports test files by their basename."""
    counts = Counter(path.name for path in TESTS if path.name.startswith("test_"))
    assert [name for name, count in counts.items() if count > 1] == []


def test_package_says_that_it_is_typed():
    assert (ROOT / "stagecut" / "py.typed").is_file()


def test_every_folder_with_modules_is_a_package():
    folders = {path.parent for path in SOURCES}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_everything_public_has_a_docstring(path):
    with tokenize.open(path) as file:
        tree = ast.parse(file.read())
    assert ast.get_docstring(tree) is not None
    assert _undocumented(tree.body) == []
