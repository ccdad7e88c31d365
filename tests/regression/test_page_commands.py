"""Commands of the pages: those of docs/how_to run, those of all pages name commands and options that exist."""

import json
import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from stagecut.planner.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("examples/*/README.md")))
HOW_TO = [page for page in PAGES if page.parent.name == "how_to"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|\s)(?:\$ |\.venv/bin/)?(plan [a-z]+ .*|plan [a-z]+)$")
SHORTER = {"solve": ("--time-limit", "30"), "--for": ("--no-compare-free",)}
"""What a command with this word gets so that it takes less time."""


def _commands(page):
    """The lines of the page's code blocks that begin with `plan` and a command, continued lines joined."""
    text = "".join(block for _, block in BLOCK.findall(page.read_text(encoding="utf-8"))).replace("\\\n", " ")
    lines = (re.split(r" && | > | \| ", line.strip())[-1 if "&&" in line else 0] for line in text.splitlines())
    return [shlex.split(found[1], comments=True) for line in lines if (found := COMMAND.match(line))]


def _command(words):
    """The command that the words after `plan` name, its context, and its own arguments."""
    command, context = main, click.Context(main, info_name="plan")
    while isinstance(command, click.Group) and words and words[0] in command.list_commands(context):
        command = command.get_command(context, words[0])
        context = click.Context(command, info_name=words[0], parent=context)
        words = words[1:]
    return command, context, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_and_their_options_exist(page):
    """Every option is one of the command; click would say which is not."""
    for words in _commands(page):
        if words[1] != "+":  # a formula of the executor's page begins with "plan +"
            command, context, rest = _command(words[1:])
            assert command is not main, words
            command.make_parser(context).parse_args(rest)


@pytest.mark.slow
@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_commands_of_a_how_to_page_run(page, tmp_path, monkeypatch):
    """In their order and in one folder, beside the configuration that the page shows; their folders hold a README."""
    monkeypatch.chdir(tmp_path)
    for kind, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "json":
            Path("config.json").write_text(json.dumps(json.loads(block)))
    commands = _commands(page)
    assert [words[1] for words in commands].count("solve") == 1
    for _, *words in commands:
        shorter = [option for word in words for option in SHORTER.get(word, ())]
        done = CliRunner().invoke(main, [*words, *shorter], prog_name="plan")
        assert done.exit_code == 0, (words, done.output)
        if "--folder" in words:
            assert (tmp_path / words[words.index("--folder") + 1] / "README.md").is_file()


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_launch_line_of_a_how_to_page_is_that_of_the_export(page):
    """The page has the hosts and devices of its own cluster: the text says 2x8, the launch two nodes of 8."""
    text = page.read_text(encoding="utf-8")
    for nodes, devices in re.findall(r"--nnodes (\d+) --node-rank 0 --nproc-per-node (\d+)", text):
        (cluster,) = re.findall(r'plan clusters new "([^"]+)"', text)
        groups = [re.match(r"(?:(\d+)x)?(\d+) ", group) for group in cluster.split(" + ")]
        assert sum(int(group[1] or 1) for group in groups) == int(nodes)
        assert {group[2] for group in groups} == {devices}
