"""Promises about the documents: what they say is what the scripts do."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _commands() -> list[str]:
    """Lines of the first code block of the README."""
    block = re.search(r"^```\w*\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert block is not None
    return block.group(1).splitlines()


def test_ci_installs_and_tests_as_the_readme_says():
    """The second line of the README: make an environment && install && run the tests."""
    _, install, run_tests = (part.strip().removeprefix(".venv/bin/") for part in _commands()[1].split("&&"))
    script = (ROOT / ".ci/run").read_text().replace('"', "")
    assert f"/{install}" in script
    assert f"/{run_tests}" in script


def test_readme_starts_with_the_main_job():
    assert "pip install . &&" in _commands()[0]
    assert ".venv/bin/plan solve " in _commands()[0]


def test_heavy_libraries_are_optional():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = " ".join(project["dependencies"])
    assert "torch" not in wanted
    assert "matplotlib" not in wanted


def test_tests_name_one_torch_and_users_a_range():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [name for name in extras["dev"] if name.startswith("torch")] == ["torch==2.13.0"]
    assert extras["run"] == ["torch>=2.6,<3"]


def test_licence_is_the_whole_apache_text():
    text = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
