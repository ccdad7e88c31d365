"""Scripts of users: the example, and the one on the page about training."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from stagecut.planner.cli.main import main

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/train_gpt"


@pytest.mark.slow
def test_example_loses_a_device_and_its_losses_go_on(tmp_path):
    """Killed after 3 of 5 steps, it resumes from the checkpoint after 2 on two devices; the demo compares losses."""
    sizes = "--steps 5 --save-every 2 --kill-after 3 --batch 4 --tokens 8"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    demo = [sys.executable, str(EXAMPLE / "demo.py"), "--folder", str(tmp_path), *sizes.split()]
    done = subprocess.run(demo, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"resumed after step [24] on two devices; all losses agree", done.stdout)


@pytest.fixture
def one_thread():
    """Threads of this process wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_script_on_the_page_trains_and_resumes(tmp_path, monkeypatch, capsys):
    """The script of docs/training.md on one device, 20 steps of it; without its last checkpoint, half is done again."""
    script = re.search(r"```python\n(.*?)```", (ROOT / "docs/training.md").read_text(), re.DOTALL)[1]
    script = script.replace("NUM_STEPS, TOKENS = 60, 32", "NUM_STEPS, TOKENS = 20, 32")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the script leaves the number of threads as it is
    cluster = (EXAMPLE / "two_devices.yaml").read_text().replace("count: 2", "count: 1")
    Path("one_device.yaml").write_text(cluster)
    sizes = "--sequence-length 32 --global-batch 2 --precision fp32"
    command = f"solve --model gpt-mini --cluster one_device.yaml {sizes} --quiet -o plan.json"
    assert CliRunner().invoke(main, command.split()).exit_code == 0
    exec(script, {})
    lines = capsys.readouterr().out
    assert re.fullmatch(r"step 10: loss .*\nstep 20: loss .*\n", lines)
    shutil.rmtree("run/step-000020")
    exec(script, {})
    assert capsys.readouterr().out == lines.splitlines(keepends=True)[1]
