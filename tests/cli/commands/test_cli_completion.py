"""Completion in bash, zsh and fish: the scripts of docs/cli.md are what click writes, and each shell takes its own."""

import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

ASKED = {
    "bash": 'COMP_WORDS=(plan sol); COMP_CWORD=1; _plan_completion plan; echo "${COMPREPLY[@]}"',
    "zsh": 'echo "${_comps[plan]}"',
    "fish": 'complete -C "plan sol"',
}
"""What to ask each shell that has read its script; zsh completes only at a terminal, so here it says what it calls."""
EXPECTED = {"bash": "solve", "zsh": "_plan_completion", "fish": "solve\tFind a plan and prove how good it is."}
READY = {"bash": "", "zsh": "autoload -Uz compinit && compinit -u -D; ", "fish": ""}


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """An environment in which `plan` is this package."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "plan"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m stagecut "$@"\n')
    program.chmod(0o755)
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": paths, "HOME": str(folder)}


def _ask(environment, *command, **variables):
    done = subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("shell", ASKED)
def test_shell_takes_its_script_and_completes(environment, shell, tmp_path):
    """`sol` becomes `solve`, the only command that begins so."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    script = tmp_path / f"plan.{shell}"
    script.write_text(_ask(environment, "plan", _PLAN_COMPLETE=f"{shell}_source"))
    answer = _ask(environment, shell, "-c", f"{READY[shell]}source {script}; {ASKED[shell]}")
    assert answer.strip() == EXPECTED[shell]


def _read_until(terminal, text):
    """Read what a program writes to its terminal, up to a text."""
    seen = ""
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, f"{text!r} did not come, only {seen!r}"
        seen += os.read(terminal, 1 << 16).decode()


def test_zsh_completes_at_the_key_tab(environment, tmp_path):
    """Set up as docs/cli.md says; `plan sol`, Tab and `--help` are the help of `solve`."""
    if shutil.which("zsh") is None:
        pytest.skip("no zsh here")
    functions = tmp_path / ".zfunc"
    functions.mkdir()
    (functions / "_plan").write_text(_ask(environment, "plan", _PLAN_COMPLETE="zsh_source"))
    (tmp_path / ".zshrc").write_text("PS1='ready> '; fpath+=~/.zfunc; autoload -Uz compinit && compinit -u\n")
    ours, its = pty.openpty()
    homes = {"HOME": str(tmp_path), "ZDOTDIR": str(tmp_path)}
    zsh = subprocess.Popen(
        ["zsh", "-i"], stdin=its, stdout=its, stderr=its, env={**environment, **homes}, start_new_session=True
    )
    try:
        _read_until(ours, "ready> ")
        os.write(ours, b"plan sol\t")
        _read_until(ours, "solve")
        os.write(ours, b"--help\n")
        _read_until(ours, "Usage: plan solve")
    finally:
        zsh.kill()
        zsh.wait()
        os.close(ours)
        os.close(its)


@pytest.mark.parametrize("shell", ASKED)
def test_every_shell_has_a_script(environment, shell):
    """Whether or not it is installed; the script asks the program for completions."""
    if shell == "bash" and shutil.which("bash") is None:  # click asks bash for its version
        pytest.skip("no bash here")
    assert f"_PLAN_COMPLETE={shell}_complete" in _ask(environment, "plan", _PLAN_COMPLETE=f"{shell}_source")


@pytest.mark.parametrize(
    ("words", "completions"),
    [("plan c", ["compare", "check", "calibrate", "convert", "clusters"]), ("plan solve --sch", ["--schedule"])],
)
def test_commands_and_options_are_completed(environment, words, completions):
    """Of the commands in the order of the help; fish gets its words, its current word and a line per completion."""
    current = words.split()[-1]
    answer = _ask(
        environment, "plan", _PLAN_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1)
    )
    assert [line.partition(",")[2] for line in answer.splitlines()] == completions
    assert all(each.startswith(current) for each in completions)


def test_names_of_commands_are_completed_without_importing_them():
    code = (
        "import sys; from stagecut.planner.cli.main import main\n"
        "try: main(prog_name='plan')\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith('stagecut.planner.cli.commands.')])"
    )
    variables = {"_PLAN_COMPLETE": "bash_complete", "COMP_WORDS": "plan ", "COMP_CWORD": "1"}
    answer = _ask({**os.environ, **variables}, sys.executable, "-c", code)
    assert answer.splitlines()[-1] == "[]"
    assert "plain,solve" in answer
