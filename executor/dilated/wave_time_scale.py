"""How far planned times must be stretched for this machine to keep up with a dilated run of virtual workers."""

import time

from stagecut.executor.dilated.time_scale import OVERHEAD_MARGIN, round_up
from stagecut.executor.dilated.wave_dilation import WaveDilation
from stagecut.executor.waves.setting.data import WaveData
from stagecut.executor.waves.team import WaveTeam
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker
from stagecut.planner.simulator.waves.steady import steady_state

PATH_ACTION_S = 0.08
"""A wave should take this long per action on its critical path: the runtime adds about 1 ms to each on a machine
that other programs use as well."""
PLAYS = 2
"""Waves at full speed; the first, which creates threads and buffers, does not count."""


def find_wave_time_scale(team: WaveTeam, data: WaveData, *, pace: WaveDilation) -> float:
    """The smallest round factor with which this machine keeps up.

    With T the time of a wave at full speed, and n the actions that follow one another in a wave of one worker:

        time scale >= max(OVERHEAD_MARGIN * T, PATH_ACTION_S * n) / predicted time of a wave
    """
    pace.time_scale = 0.0
    team.train(data, num_waves=PLAYS - 1)
    start_s = time.monotonic()
    team.train(data, num_waves=1)
    played_s = time.monotonic() - start_s
    path = max(map(_path_actions, team.execution.plan.workers))
    wanted_s = max(OVERHEAD_MARGIN * played_s, PATH_ACTION_S * path)
    return round_up(wanted_s / steady_state(pace.network.costs).wave_s)


def _path_actions(worker: VirtualWorker) -> float:
    """What follows one another in a wave.

    Forward, backward and update of each minibatch on one stage, or for every N_m of them a round trip of computations
    and messages through all stages.
    """
    return worker.wave * max(3.0, (4 * worker.num_stages - 2) / worker.in_flight)
