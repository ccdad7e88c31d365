"""What all ranks of a run through waves train on, and how its progress shows."""

from collections.abc import Callable

import torch

from stagecut.executor.play.batch import Batch
from stagecut.executor.run.options import RunOptions
from stagecut.executor.waves.carriers.server import WaveServer
from stagecut.executor.waves.setting.data import WaveData, sharded
from stagecut.executor.waves.setting.layout import WaveRole
from stagecut.executor.waves.stage_worker import StageWorker
from stagecut.models.modules.module_chain import ModuleChain
from stagecut.planner.io.files.wave_plan_file import WavePlanFile

WaveObserver = Callable[[int], None]
"""Called with the number of each wave, from 0, when the first worker begins it, or when all have ended those before."""


def wave_data(plan_file: WavePlanFile, chain: ModuleChain, options: RunOptions) -> WaveData:
    """The same samples in every wave of all workers, so that the loss falls."""
    return sharded(whole_batch(plan_file, chain, options), plan_file.plan, seed=None)


def whole_batch(plan_file: WavePlanFile, chain: ModuleChain, options: RunOptions) -> Batch:
    """The samples of a wave of all workers."""
    assert chain.batch is not None  # checked by `layers_of`
    return chain.batch(plan_file.plan.samples_per_wave, torch.Generator().manual_seed(options.seed))


def observed(data: WaveData, role: WaveRole, observer: WaveObserver, *, wave: int) -> WaveData:
    """The same data; on the first stage of the first worker, waves of so many minibatches are counted."""
    if role.worker != 0 or role.stages != (0,):
        return data

    def batch(worker: int, minibatch: int) -> Batch:
        if minibatch % wave == 1 % wave:
            observer((minibatch - 1) // wave)
        return data(worker, minibatch)

    return batch


def observed_server(server: StageWorker | WaveServer, observer: WaveObserver, *, num_waves: int) -> None:
    """Let a parameter server count waves: it is there to the end, while any worker may be dropped."""
    assert isinstance(server, WaveServer)

    def count(clock: int) -> None:
        if clock < num_waves:
            observer(clock)

    count(server.shard.clock)
    server.shard.observer = count
