"""Files of a command line: an output is no other file that was named."""

import os

import click
import pytest

from stagecut.planner.cli.main import main
from stagecut.planner.cli.parameters.files import InputFile, ModuleFunction, NameOrFile, OutputFile


def parameters():
    context = click.Context(main, info_name="plan")
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        for each in (command, *getattr(command, "commands", {}).values()):
            yield from ((each.name, parameter) for parameter in each.params)


def test_every_option_for_a_file_compares_it_with_the_others():
    ours = InputFile | OutputFile | NameOrFile | ModuleFunction
    words = ("FILE", "PLAN", "RUNS", "MODULE")
    named = [
        (command, parameter)
        for command, parameter in parameters()
        if isinstance(parameter.type, click.Path | click.File)
        or any(word in (parameter.metavar or "") for word in words)
    ]
    assert len(named) > 30
    assert [(command, each.name) for command, each in named if not isinstance(each.type, ours)] == []


@pytest.fixture
def copy(plan_file, tmp_path):
    """A plan file that might be overwritten, and what is in it."""
    path = tmp_path / "copy.json"
    path.write_bytes(plan_file.read_bytes())
    return path


@pytest.fixture
def aliases(copy, tmp_path):
    """Other paths to it."""
    (tmp_path / "symbolic.json").symlink_to(copy)
    os.link(copy, tmp_path / "hard.json")
    (tmp_path / "folder").mkdir()
    return copy, tmp_path / "symbolic.json", tmp_path / "hard.json", tmp_path / "folder" / ".." / "copy.json"


@pytest.mark.parametrize("option", ["--trace", "--gantt"])
def test_output_over_an_input_is_refused_even_with_force(plan, plan_file, copy, aliases, option):
    for alias in aliases:
        for arguments in ((copy, option, alias, "--force"), (alias, option, copy, "--force")):
            done = plan("simulate", *arguments)
            assert done.exit_code == 3
            assert "is also an input" in done.stderr
            assert done.stdout == ""
    assert copy.read_bytes() == plan_file.read_bytes()


@pytest.mark.parametrize("option", ["-o", "--trace", "--gantt", "--convergence"])
@pytest.mark.parametrize("file", ["profile.yaml", "cluster.yaml", "job.yaml"])
def test_inputs_of_a_search_stay(plan, tiny, tiny_folder, option, file):
    done = plan("solve", option, tiny_folder / file, *tiny, "--force")
    assert done.exit_code == 3
    assert f"{file}: is also an input" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "a.json", "-o", "a.json"),
        ("run", "a.json", "--trace", "a.json"),
        ("run", "a.json", "--history", "a.json"),
        ("run", "runs.jsonl", "-o", "b.json"),
        ("run", "a.json", "--layers", "net:chain", "-o", "net.py"),
        ("calibrate", "a.jsonl", "--profile", "p.json", "-o", "a.jsonl"),
        ("calibrate", "a.jsonl", "--profile", "p.json", "-o", "p.json"),
        ("convert", "a.json", "b.json", "-o", "b.json"),
        ("convert", "a.json", "--to", "torchtitan", "--schedule-csv", "a.json"),
        ("convert", "a.json", "--bytes-from", "b.json", "-o", "b.json"),
        ("profile", "model", "gpt-mini", "--add-to", "a.json", "-o", "a.json"),
        ("profile", "model", "--layers", "net:chain", "-o", "net.py"),
    ],
)
def test_no_command_writes_what_it_reads(plan, tmp_path, monkeypatch, arguments):
    """Decided by the names alone: none of the files exists."""
    monkeypatch.chdir(tmp_path)
    done = plan(*arguments)
    assert done.exit_code == 3
    assert "is also an input" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "a.json", "-o", "b.json", "--trace", "./b.json"),
        ("run", "a.json", "-o", "runs.jsonl"),
        ("convert", "a.json", "--to", "torchtitan", "--schedule-csv", "b", "-o", "b"),
        ("simulate", "a.json", "--trace", "b.png", "--gantt", "b.png"),
    ],
)
def test_two_outputs_in_one_file_are_refused(plan, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    done = plan(*arguments)
    assert done.exit_code == 3
    assert "is named for two outputs" in done.stderr


def test_same_input_twice_is_fine(plan, plan_file):
    assert plan("clusters", "show", "hetpipe-16").exit_code == 0
    assert "bad" not in plan("convert", plan_file, plan_file).stderr
