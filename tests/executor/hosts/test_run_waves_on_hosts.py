"""`plan run` of virtual workers on two hosts, network namespaces of this machine, with a server on either."""

import json

import pytest

pytest.importorskip("torch")

from click.testing import CliRunner

from stagecut.planner.cli.main import main
from stagecut.planner.core.waves import LocalStep
from tests.executor.hosts.namespaces import two_hosts
from tests.executor.hosts.torchrun import PLAN, on_hosts
from tests.wave_files import SPREAD, tiny_plan, write_wave_file

RUN = ["run", "--layers", "tests.executor.tiny_layers:chain", "--device", "cpu", "--json", "--quiet", "--timeout", "60"]
WATCHDOG_S = 180
NUM_RANKS = 3, 3
"""Of each host: two stages and a server."""


@pytest.mark.slow
def test_run_of_workers_on_two_hosts_has_the_losses_of_threads(tmp_path):
    """Every worker has a stage on each host, and either host owns layers: all kinds of messages cross the cable."""
    plan = tiny_plan(local_step=LocalStep.WAVE, clock_distance=0, owners=SPREAD, unlike=False)
    path = write_wave_file(tmp_path / "plan.json", plan)
    files = ["--history", str(tmp_path / "runs.jsonl"), "--steps", "2", "--warmup", "1", str(path)]
    with two_hosts() as hosts:
        done = on_hosts(hosts, NUM_RANKS, PLAN, *RUN, *files, folder=tmp_path, timeout_s=WATCHDOG_S)
    assert [each.code for each in done] == [0, 0], done
    threads = CliRunner().invoke(main, [*RUN, *files, "--one-process"])
    assert threads.exit_code == 0, threads.output
    losses = [json.loads(answer)["losses"] for answer in (done[0].stdout, threads.stdout)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert done[1].stdout == ""
