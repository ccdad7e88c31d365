"""What a parameter server gives whom, and when."""

import pytest
import torch

from stagecut.executor.waves.carriers.shard import Shard
from stagecut.executor.waves.setting.schemes import DILOCO, LOCAL_SGD, SYNCHRONOUS, WSP

MEMBERS = {(0, 0): slice(0, 1), (0, 1): slice(1, 3), (1, 0): slice(0, 3), (2, 0): slice(0, 3)}
"""Three weights; worker 0 holds them on two stages."""
SHARES = {0: 0.5, 1: 0.25, 2: 0.25}


def shard_of(scheme):
    return Shard(torch.zeros(3), MEMBERS, scheme, shares=SHARES)


def push(shard, wave, *values):
    """Let workers 0, 1, ... push a value for all their weights."""
    for worker, value in enumerate(values):
        for member, own in MEMBERS.items():
            if member[0] == worker:
                shard.push(member, wave, torch.full((own.stop - own.start,), value))


def test_a_pull_holds_the_others_complete_waves_only():
    """Worker 2 is a wave behind: the second wave of the others is kept apart."""
    shard = shard_of(WSP)
    push(shard, 0, 1.0, 10.0)
    answer = shard.ask((0, 1), have=0, least=1)
    push(shard, 1, 2.0, 20.0)
    assert not answer.done()
    assert shard.late() == ((2, 0),)
    shard.push((2, 0), 0, torch.full((3,), 100.0))
    assert answer.result().clock == shard.clock == 1
    assert answer.result().content.tolist() == [110.0, 110.0]
    assert shard.weights.tolist() == [111.0] * 3
    shard.push((2, 0), 1, torch.full((3,), 200.0))
    assert shard.ask((0, 1), have=1, least=1).result().content.tolist() == [220.0, 220.0]
    assert shard.ask((2, 0), have=0, least=2).result().content.tolist() == [33.0] * 3


def test_a_clock_needs_all_stages():
    shard = shard_of(WSP)
    push(shard, 0, 1.0, 1.0)
    shard.push((2, 0), 0, torch.ones(3))
    shard.push((0, 0), 1, torch.ones(1))
    push_last = {(1, 0), (2, 0)}
    for member in push_last:
        shard.push(member, 1, torch.ones(3))
    assert shard.clock == 1
    shard.push((0, 1), 1, torch.ones(2))
    assert shard.clock == 2


def test_waves_that_all_have_fetched_are_forgotten():
    shard = shard_of(WSP)
    for wave in range(3):
        push(shard, wave, 1.0, 1.0, 1.0)
        for member in MEMBERS:
            shard.ask(member, have=wave, least=wave + 1).result()
    assert shard.waves == {}


def test_gradients_come_wave_by_wave_and_means_replace_the_weights():
    """Pushes are weighted by shares already: sums are means. DiLoCo's first step is 0.7 (1 + 0.9) times the mean."""
    stepped, averaged, outer = shard_of(SYNCHRONOUS), shard_of(LOCAL_SGD), shard_of(DILOCO)
    for shard in (stepped, averaged, outer):
        push(shard, 0, 0.5, 0.25, 0.0)
    push(stepped, 1, 5.0, 2.0, 1.0)
    assert stepped.ask((0, 1), have=0, least=1).result().content.tolist() == [0.75, 0.75, 8.0, 8.0]
    assert averaged.ask((0, 1), have=0, least=1).result().content.tolist() == [0.75, 0.75]
    assert outer.weights.tolist() == pytest.approx([0.7 * 1.9 * 0.75] * 3)


def test_training_goes_on_without_a_worker():
    """Worker 0 dies between the pushes of its two stages: the half is gone. A mean is that of those who are left."""
    added, averaged = shard_of(WSP), shard_of(LOCAL_SGD)
    for shard in (added, averaged):
        push(shard, 0, 0.5, 0.25, 0.25)
        answer = shard.ask((1, 0), have=0, least=2)
        for member in ((0, 0), (1, 0), (2, 0)):
            shard.push(member, 1, torch.full((1 if member[0] == 0 else 3,), 0.25))
        assert not answer.done()
        shard.drop(0)
        assert answer.result().clock == 2
        shard.push((0, 1), 1, torch.ones(2))
    assert added.weights.tolist() == [1.0 + 0.5] * 3
    assert averaged.weights.tolist() == [1.0 + 1.0] * 3


def test_whoever_waits_fails_with_the_shard():
    shard = shard_of(WSP)
    answer = shard.ask((0, 0), have=0, least=1)
    shard.fail(ValueError("gone"))
    for waiting in (answer, shard.ask((1, 0), have=0, least=1)):
        with pytest.raises(ValueError, match="gone"):
            waiting.result()
