"""All ranks of a plan of virtual workers in one process: a thread for each stage."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from stagecut.executor.play.build import Layers
from stagecut.executor.transport.threads import Hub, TeamBrokenError
from stagecut.executor.waves.carriers.channels import AllReduceChannel, Channel, DirectChannel, SharedSums
from stagecut.executor.waves.carriers.flat import FlatLayout
from stagecut.executor.waves.carriers.shards import build_shard
from stagecut.executor.waves.setting.data import WaveData
from stagecut.executor.waves.setting.execution import WaveExecution, WaveTraining
from stagecut.executor.waves.setting.layout import Member, Part, WaveRole
from stagecut.executor.waves.setting.report import WaveReport
from stagecut.executor.waves.setting.wave_pace import WavePace
from stagecut.executor.waves.stage_worker import StageWorker
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan

T = TypeVar("T")
PaceMaker = Callable[[WaveRole], WavePace]
"""Makes the pace of a stage."""
ChannelWrapper = Callable[[WaveRole, Part, Channel], Channel]
"""Changes how a stage exchanges a part, for example how long it takes."""


class WaveTeam:
    """The stages of all workers and the shards of all parameter servers, on one shared device.

    Parameters
    ----------
    plan, layers, training, problem
        See :func:`stagecut.executor.waves.loading.load_waves`.

    pace
        The pace of a stage; None: full speed.
    channel
        What to put around the channel of a part of a stage; None: nothing.

    Raises
    ------
    BadInputError
        See :meth:`stagecut.executor.waves.setting.execution.WaveExecution.of`.
    """

    def __init__(
        self,
        plan: WavePlan,
        layers: Layers,
        training: WaveTraining | None = None,
        *,
        problem: Problem | None = None,
        device: torch.device | None = None,
        pace: PaceMaker | None = None,
        channel: ChannelWrapper | None = None,
    ) -> None:
        self._pace, self._wrap = pace, channel
        self.execution = WaveExecution.of(plan, layers, training or WaveTraining(), problem=problem)
        self.device = device or torch.device("cpu")
        layout = self.execution.layout
        self._hub = Hub(layout.world_size)
        self.shards = {role.device: build_shard(self.execution, role.device, self.device) for role in layout.servers}
        self._sums: dict[tuple[int, ...], SharedSums] = {}
        recomputes = any(stage.recompute for worker in plan.workers for stage in worker.stages)
        # Recomputation rewinds the device's only generator for a moment: no other thread may draw meanwhile.
        self._lock: AbstractContextManager[object] = threading.Lock() if recomputes else nullcontext()
        self.workers = tuple(self._worker(role) for role in layout.roles if role.worker is not None)

    def train(self, data: WaveData, *, num_waves: int) -> list[WaveReport]:
        """Train so many waves on all ranks; raise the first exception of any of them.

        A team that has failed cannot go on.
        """
        return self.each(lambda worker: worker.train(data, num_waves=num_waves))

    def each(self, work: Callable[[StageWorker], T]) -> list[T]:
        """Run a function on all stages at once."""
        futures: list[Future[T]] = [Future() for _ in self.workers]
        for worker, future in zip(self.workers, futures, strict=True):
            threading.Thread(target=self._run, args=(work, worker, future), name=str(worker.role), daemon=True).start()
        try:
            wait(futures)
        except KeyboardInterrupt:  # nobody waits for daemon threads that sleep
            self._break_up()
            raise
        faults = [fault for future in futures if (fault := future.exception())]
        for fault in sorted(faults, key=lambda fault: isinstance(fault, TeamBrokenError)):
            raise fault
        return [future.result() for future in futures]

    def global_weights(self) -> dict[str, Tensor]:
        """Parameters by global name, those of the servers or else of worker 0, with the buffers of worker 0."""
        weights: dict[str, Tensor] = {}
        for worker in self.workers:
            if worker.role.worker == 0:
                weights |= worker.held_weights()
        for shard, layout in self.shards.values() if self.execution.has_global_weights else ():
            weights |= layout.split(shard.weights.clone())
        return weights

    def _worker(self, role: WaveRole) -> StageWorker:
        def channel(member: Member, part: Part, _: FlatLayout, vector: Tensor) -> Channel:
            own = self._channel(member, part, vector)
            return own if self._wrap is None else self._wrap(role, part, own)

        return StageWorker(
            self.execution,
            role,
            transport=self._hub.transport(role.rank),
            channel_of=partial(channel, role.member),
            device=self.device,
            lock=self._lock,
            pace=None if self._pace is None else self._pace(role),
        )

    def _channel(self, member: Member, part: Part, vector: Tensor) -> Channel:
        if part.owner:
            return DirectChannel(self.shards[part.owner][0], member)
        sums = self._sums.setdefault(part.layers, SharedSums(len(part.members)))
        return AllReduceChannel(sums.reducer(member[0]), vector, self.execution.scheme)

    def _run(self, work: Callable[[StageWorker], T], worker: StageWorker, future: "Future[T]") -> None:
        try:
            future.set_result(work(worker))
        except BaseException as fault:
            self._break_up()
            future.set_exception(fault)

    def _break_up(self) -> None:
        self._hub.break_up()
        fault = TeamBrokenError("another rank of this process has failed")
        for shard, _ in self.shards.values():
            shard.fail(fault)
        for sums in self._sums.values():
            sums.fail(fault)
