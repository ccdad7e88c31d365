"""Faults of our own, and Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from stagecut.planner.cli.process.cancellable import run_cancellable, stop_requests
from stagecut.planner.cli.process.faults import exit_code_of
from stagecut.planner.cli.process.lazy_group import LazyGroup
from stagecut.planner.core.messages.errors import BadInputError, OutputError, StagecutError

ROOT = Path(__file__).parents[3]


def failing_group(fault):
    """A group with one command that fails in this way."""

    class Group(LazyGroup):
        def get_command(self, ctx, cmd_name):
            @click.command(cmd_name)
            def command():
                raise fault

            return command

    return Group(package="", summaries={"fail": ""}, name="plan")


@pytest.mark.parametrize(
    ("fault", "code", "message"),
    [
        (StagecutError("broken"), 1, "Error: broken\n"),
        (BadInputError("first", "second"), 3, "Error: first\nError: second\n"),
        (OutputError("full"), 3, "Error: full\n"),
        (KeyboardInterrupt(), 130, "Error: interrupted\n"),
        (
            ValueError("what\nnow"),
            1,
            "Error: internal fault: ValueError: what now; run again with -v for the traceback\n",
        ),
        (click.UsageError("wrong"), 2, "Error: wrong\n"),
    ],
)
def test_every_fault_has_a_message_and_a_code(fault, code, message):
    done = CliRunner().invoke(failing_group(fault), ["fail"])
    assert done.exit_code == code
    assert done.stdout == ""
    assert done.stderr.endswith(message)
    assert "Traceback" not in done.stderr


def test_verbose_shows_where_an_internal_fault_happened(capsys):
    try:
        raise ValueError("what")
    except ValueError as fault:
        assert exit_code_of(fault, verbose=True) == 1
    assert "Traceback" in capsys.readouterr().err


def test_work_returns_its_value_and_raises_its_fault():
    with stop_requests() as requested:
        assert run_cancellable(requested.is_set, requested) is False
        with pytest.raises(BadInputError, match="no good"):
            run_cancellable(lambda: (_ for _ in ()).throw(BadInputError("no good")), requested)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_asks_the_work_to_stop_and_keeps_what_it_has(number, capsys):
    before = signal.getsignal(number)

    def work(requested):
        os.kill(os.getpid(), number)
        return "best so far" if requested.wait(30) else "never asked"

    with stop_requests() as requested:
        assert run_cancellable(lambda: work(requested), requested) == "best so far"
    assert signal.getsignal(number) is before


def test_second_signal_ends_the_program_at_once():
    """The work never stops by itself."""
    code = (
        "import click, os, signal, threading\n"
        "from stagecut.planner.cli.main import main\n"
        "from stagecut.planner.cli.process.cancellable import run_cancellable, stop_requests\n"
        "def work(requested):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    requested.wait()\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    threading.Event().wait()\n"
        "def run():\n"
        "    with stop_requests() as requested:\n"
        "        run_cancellable(lambda: work(requested), requested)\n"
        "def command(ctx, name):\n"
        "    return click.Command(name, callback=run)\n"
        "main.get_command = command\n"
        "main(['solve'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 130
    assert done.stderr == "interrupted: stopping; keeping the best result so far. Press Ctrl-C again to abort\n"


def test_interrupted_search_prints_and_writes_its_best_plan(plan, tmp_path):
    """Solving to gap 0 takes minutes; the first progress line with a plan comes after seconds."""
    path = tmp_path / "plan.json"
    command = [sys.executable, "-m", "stagecut", "solve", "--model", "resnet152", "--cluster", "three-generations-64"]
    options = ["--global-batch", "256", "--gap", "0", "--time-limit", "none", "-o", str(path)]
    with subprocess.Popen(
        [*command, *options], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        next(line for line in running.stderr if "best " in line and "best -" not in line)
        running.send_signal(signal.SIGINT)
        stdout, stderr = running.communicate(timeout=120)
    assert running.returncode == 130
    assert "interrupted: " in stdout
    assert f"wrote {path}" in stderr
    assert plan("check", path).exit_code == 0
