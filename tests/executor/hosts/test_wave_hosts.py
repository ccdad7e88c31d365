"""Virtual workers on two hosts, network namespaces of this machine, with a parameter server on both."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from stagecut.executor.waves.setting.data import sharded
from stagecut.executor.waves.setting.execution import WaveTraining
from stagecut.executor.waves.team import WaveTeam
from tests.executor.hosts.namespaces import two_hosts
from tests.executor.hosts.torchrun import on_hosts
from tests.executor.hosts.wave_script import ADAM, NUM_WAVES, plan, problem
from tests.executor.waves.wave_plans import MSE, layers, samples

SCRIPT = Path(__file__).with_name("wave_script.py")
NUM_RANKS = (3, 2)
"""Two devices and a server, one device and a server."""
WATCHDOG_S = 120


@pytest.mark.slow
def test_workers_and_servers_on_two_hosts_train_like_threads(tmp_path):
    """The second worker's pipeline crosses the cable, and so does half of what is pushed and pulled."""
    answer = tmp_path / "answer.json"
    with two_hosts() as hosts:
        done = on_hosts(hosts, NUM_RANKS, SCRIPT, str(answer), folder=tmp_path, timeout_s=WATCHDOG_S)
    assert [each.code for each in done] == [0, 0], done
    found = json.loads(answer.read_text())
    assert [role for _, _, role in found] == [
        "rank 0 (host0/0, worker 0, stage 0)",
        "rank 1 (host0/1, worker 1, stage 0)",
        "rank 2 (parameter server of host0)",
        "rank 3 (host1/0, worker 1, stage 1)",
        "rank 4 (parameter server of host1)",
    ]
    team = WaveTeam(plan(), layers(), WaveTraining(loss_fn=MSE, optimizer=ADAM), problem=problem())
    for report in team.train(sharded(samples(12), plan()), num_waves=NUM_WAVES):
        losses, clock, _ = found[report.rank]
        assert losses == pytest.approx(report.losses, abs=1e-12)
        assert clock == report.clock
    assert found[2][1] == found[4][1] == NUM_WAVES
