"""Training goes on without a worker of which a rank dies."""

import signal
from pathlib import Path

import pytest
import torch

pytest.importorskip("torch")

from stagecut.executor.ranks.launch import launch
from stagecut.executor.waves.setting.execution import WaveTraining
from stagecut.executor.waves.team import WaveTeam
from tests.executor.waves.drop_script import CREWS, FULL_WAVES, MSE, NUM_WAVES, SGD, VICTIM, data, plan
from tests.executor.waves.wave_plans import check_close, layers

ROOT = Path(__file__).parents[3]
SCRIPT = "tests.executor.waves.drop_script"


def expected_weights():
    """Two waves of both workers, then plain steps with the other four minibatches of worker 0."""
    team = WaveTeam(plan(), layers(), WaveTraining(loss_fn=MSE, optimizer=SGD))
    team.train(data, num_waves=FULL_WAVES)
    model = torch.nn.Sequential(*layers())
    model.load_state_dict({name.removeprefix("layer"): value for name, value in team.global_weights().items()})
    optimizer = SGD(model.parameters())
    for minibatch in range(FULL_WAVES + 1, NUM_WAVES + 1):
        inputs, targets = data(0, minibatch)
        optimizer.zero_grad()
        MSE(model(inputs), targets).backward()
        optimizer.step()
    return {f"layer{name}": value.detach() for name, value in model.named_parameters()}


def test_others_train_as_if_the_dead_worker_had_stopped(tmp_path, monkeypatch):
    """Its gate of wave 2 has let it pass, so waves 0 and 1 are complete everywhere. Servers: ranks 3 and 4."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    launch(["-m", SCRIPT, str(tmp_path)], num_ranks=5, crews=CREWS)
    found = {int(path.name): torch.load(path) for path in tmp_path.iterdir()}
    assert sorted(found) == [0, 3, 4]
    for told in found.values():
        codes = told["codes"]
        assert codes[VICTIM] == -signal.SIGKILL
        assert [rank for rank, code in enumerate(codes) if code is not None] == [1, 2]
    assert [found[server]["dropped"] for server in (3, 4)] == [[(1, FULL_WAVES)]] * 2
    for holders in ((0,), (3, 4)):
        weights = {name: value for rank in holders for name, value in found[rank]["weights"].items()}
        check_close(weights, expected_weights())
