"""Help and documentation: every command has both, and they agree."""

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from stagecut.planner.cli.main import SUMMARIES, main

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "cli.md").read_text()
CONTEXT = click.Context(main, info_name="plan")


def commands():
    """Every command with its name: `solve`, `models`, `models show` ..."""
    for name in main.list_commands(CONTEXT):
        command = main.get_command(CONTEXT, name)
        yield name, command
        for inner in getattr(command, "commands", {}).values():
            yield f"{name} {inner.name}", inner


ALL = dict(commands())


def section(name):
    """The part of the page about a command; options that commands share have sections of their own."""
    own = PAGE.partition(f"\n## plan {name.partition(' ')[0]}\n")[2].partition("\n## ")[0]
    shared = PAGE.partition("\n## What holds for every command\n")[2].partition("\n## plan solve\n")[0]
    return own, shared if name in ("solve", "compare", "explain") else shared.partition("\n## ")[0]


@pytest.mark.parametrize("name", ALL)
def test_help_ends_with_an_example_that_is_this_command(plan, name):
    shown = plan(*name.split(), "--help").stdout
    assert f"Example:\n    plan {name}" in shown.rpartition("\n\n")[2]
    assert f"plan {name}" in section(name)[0]


@pytest.mark.parametrize("name", ALL)
def test_every_option_has_help_and_is_on_the_page(name):
    own, shared = section(name)
    for parameter in ALL[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            for flag in parameter.opts:
                assert re.search(rf"`{flag}\b", own + shared), flag


@pytest.mark.parametrize("name", ALL)
def test_every_command_takes_json(name):
    assert any("--json" in parameter.opts for parameter in ALL[name].params)


@pytest.mark.parametrize("name", SUMMARIES)
def test_summary_known_without_import_is_the_first_sentence_of_the_help(name):
    text = ALL[name].help
    summary = SUMMARIES[name]
    assert text.partition("\n")[0].rstrip(".:").startswith(summary.rstrip(".").partition(",")[0])
    assert f"`plan {name}`](#plan-{name}) | {summary.rstrip('.').lower()[0]}" in PAGE


@pytest.mark.parametrize("code", ["0", "1", "2", "3", "4", "5", "6", "130", "141"])
def test_exit_codes_are_on_the_page_and_in_the_help(plan, code):
    assert f"\n| {code} | " in PAGE
    assert re.search(rf"\b{code}\s+[a-z]", plan("--help").stdout)


def test_keys_of_json_answers_are_on_the_page(plan_json, plan_file, tiny):
    """Every key that is not inside a plan, a table of counts, or a table of names."""
    answers = {
        "solve": plan_json("solve", *tiny),
        "compare": plan_json("compare", *tiny, "--solvers", "even"),
        "simulate": plan_json("simulate", plan_file),
        "estimate": plan_json("estimate", plan_file),
        "explain": plan_json("explain", plan_file, "--what-if", "nic"),
        "check": plan_json("check", plan_file),
        "models": plan_json("models"),
        "clusters": plan_json("clusters"),
        "doctor": plan_json("doctor"),
    }
    for name, answer in answers.items():
        documented = section(name)[0] + section("solve")[0] + section("simulate")[0]
        assert {key for key in keys(answer) if key not in documented} == set()


OPAQUE = {"plan", "counts", "versions", "options", "input_hashes", "libraries"}


def keys(tree):
    if isinstance(tree, list):
        return {key for item in tree for key in keys(item)}
    if isinstance(tree, dict):
        return set(tree) | {inner for key, item in tree.items() if key not in OPAQUE for inner in keys(item)}
    return set()


def test_help_imports_no_command():
    """Help pays for none of our imports: no numpy, no tables, no file readers."""
    code = (
        "import json, sys; from stagecut.planner.cli.main import main; main(['--help'], standalone_mode=False);"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stderr))
    assert loaded & {"torch", "highspy", "pulp", "numpy", "pydantic", "rich", "yaml", "stagecut.models"} == set()
    assert loaded & {f"stagecut.planner.cli.commands.{name}" for name in SUMMARIES} == set()
    assert "solve" in done.stdout


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version_is_told(plan, flag):
    assert plan(flag).stdout.startswith("stagecut, version ")


def test_options_stand_under_headings(plan):
    """Those of the problem first; those that every command has last."""
    shown = plan("solve", "--help").stdout
    headings = re.findall(r"^(\S.*):$", shown, re.MULTILINE)
    assert headings == [
        "What to plan",
        "Virtual workers, with --synchronisation wsp",
        "Prices",
        "How to search",
        "What to write",
        "Options",
    ]
    assert "--solver" in shown.partition("How to search:")[2].partition("What to write:")[0]
    assert "--json" in shown.partition("\nOptions:")[2]


def test_an_unknown_command_is_wrong_usage(plan):
    done = plan("slove")
    assert done.exit_code == 2
    assert "No such command 'slove'" in done.stderr


def test_misspelt_command_gets_the_nearest_name(plan):
    done = plan("solv")
    assert done.exit_code == 2
    assert "did you mean 'solve'?" in done.stderr
