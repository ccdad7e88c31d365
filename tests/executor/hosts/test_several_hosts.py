"""One run on two hosts: network namespaces of this machine, joined by a slow cable."""

import json
import subprocess

import pytest

pytest.importorskip("torch")

import torch
from click.testing import CliRunner

from stagecut.executor import Team
from stagecut.executor.execution_plan import Training
from stagecut.executor.run.options import RunOptions
from stagecut.planner.cli.main import main
from stagecut.planner.io.files.plan_file import read_plan_file
from tests.executor.hosts import wide_layers
from tests.executor.hosts.namespaces import CABLE, set_up, two_hosts
from tests.executor.hosts.torchrun import PLAN, ROOT, on_hosts

TINY = ROOT / "examples" / "tiny"
LAYERS = "tests.executor.hosts.wide_layers:chain"
OPTIONS = RunOptions(num_steps=2, warmup=1)
TIMEOUT_S = 60
"""How long a rank waits for another: what goes wrong is told before the watchdog barks."""
WATCHDOG_S = 180
NUM_DEVICES = (2, 1)
"""Devices of each host."""
LIMIT = ("rate", "4mbit", "burst", "4kb", "latency", "1s")
"""Limits of the cable, in either direction. The burst holds a packet, but not a message."""


@pytest.fixture
def hosts():
    """Two hosts with a slow cable between them."""
    with two_hosts(tools=("ip", "tc")) as pair:
        for host in pair:
            set_up("tc", "-n", host.name, "qdisc", "add", "dev", CABLE, "root", "tbf", *LIMIT)
        yield pair


@pytest.fixture
def plan_path(tmp_path):
    """The tiny problem with two devices on one host and one on the other."""
    text = (TINY / "cluster.yaml").read_text()
    cluster, path = tmp_path / "cluster.yaml", tmp_path / "plan.json"
    cluster.write_text(text.replace("device_type: T4\n        count: 2", "device_type: T4\n        count: 1"))
    files = ["--model", TINY / "profile.yaml", "--cluster", cluster, "--job", TINY / "job.yaml", "-o", path]
    done = CliRunner().invoke(main, ["solve", "--quiet", "--pipelines", "1", *map(str, files)])
    assert done.exit_code == 0, done.output
    return path


@pytest.mark.slow
def test_run_on_two_hosts_has_the_losses_of_one(hosts, plan_path, tmp_path):
    """Torchrun on either host with as many processes as it has devices; every message between them takes its time."""
    record = tmp_path / "run.json"
    arguments = _arguments(plan_path, record)
    done = on_hosts(hosts, NUM_DEVICES, PLAN, *arguments, folder=tmp_path, timeout_s=WATCHDOG_S)
    assert [each.code for each in done] == [0, 0], done
    assert done[1].stdout == ""
    assert len(plan_path.parent.joinpath("runs.jsonl").read_text().splitlines()) == 1
    losses = [step["loss"] for step in json.loads(record.read_text())["steps"]]
    assert losses == pytest.approx(_losses_on_one_host(plan_path), rel=1e-5)
    for host in hosts:
        assert _times_held_up(host) > 0


def _arguments(plan_path, record):
    steps = ["--steps", str(OPTIONS.num_steps), "--warmup", str(OPTIONS.warmup)]
    steps += ["--timeout", str(TIMEOUT_S)]
    files = ["-o", str(record), "--history", str(record.with_name("runs.jsonl"))]
    return ["run", str(plan_path), "--layers", LAYERS, "--device", "cpu", "--json", *steps, *files]


def _losses_on_one_host(plan_path):
    """Losses of the same steps, trained by threads of this process."""
    plan_file, chain = read_plan_file(plan_path), wide_layers.chain()
    training = Training(optimizer=OPTIONS.optimizer(plan_file), seed=OPTIONS.seed)
    team = Team(plan_file, chain, training, device=torch.device("cpu"))
    batch = chain.batch(team.pipelines[0].global_batch, torch.Generator().manual_seed(OPTIONS.seed))
    return [team.step(batch) for _ in range(OPTIONS.warmup + OPTIONS.num_steps)]


def _times_held_up(host):
    """How often a packet had to wait until the cable was free."""
    shown = subprocess.run(
        ["tc", "-n", host.name, "-s", "-j", "qdisc", "show", "dev", CABLE], capture_output=True, text=True, check=True
    )
    return json.loads(shown.stdout)[0]["overlimits"]
