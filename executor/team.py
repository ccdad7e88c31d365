"""All ranks of a plan in one process: one thread each, and on a GPU one stream each."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TypeVar

import torch

from stagecut.executor.execution_plan import AnyPlan, ExecutionPlan, Training
from stagecut.executor.loading import PaceMaker, assemble
from stagecut.executor.machine.devices import numbered
from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.batch import Batch
from stagecut.executor.play.build import Layers
from stagecut.executor.play.context import RankContext
from stagecut.executor.play.pace import Pace
from stagecut.executor.schedule.rank_layout import Role
from stagecut.executor.transport.threads import Hub, TeamBrokenError
from stagecut.planner.core.messages.checks import require
from stagecut.planner.simulator.action_lists import Action

T = TypeVar("T")


class Team:
    """The pipelines of all ranks of a plan, on one shared device.

    NCCL refuses two ranks on one GPU; threads of one process do not need it.

    Parameters
    ----------
    plan, layers, training, actions, shares
        See :func:`stagecut.executor.loading.load`.
    streams
        One CUDA stream per rank, in green contexts to emulate unequal devices; None: equal streams.

    Raises
    ------
    BadInputError
        See :meth:`stagecut.executor.execution_plan.ExecutionPlan.of`; also for tensor parallelism, which needs
        processes.
    """

    def __init__(
        self,
        plan: AnyPlan,
        layers: Layers,
        training: Training | None = None,
        *,
        device: torch.device | None = None,
        actions: Sequence[Sequence[Action]] | None = None,
        shares: Sequence[Sequence[int]] | None = None,
        pace: PaceMaker | None = None,
        streams: Sequence[torch.cuda.Stream] | None = None,
    ) -> None:
        execution = ExecutionPlan.of(plan, layers, training or Training(), actions=actions, shares=shares, copied=True)
        self.device = numbered(device or torch.device("cuda" if torch.cuda.is_available() else "cpu"))
        roles = execution.layout.roles
        self._hub = Hub(len(roles))
        count = len(roles) if self.device.type == "cuda" else 0
        self._streams = [torch.cuda.Stream(self.device) for _ in range(count)] if streams is None else list(streams)
        require(len(self._streams) in (0, len(roles)), "team", "streams", "one for each rank", len(self._streams))
        # Recomputation temporarily rewinds the device's only generator: no other rank may draw meanwhile.
        lock = threading.Lock() if any(stage.recompute for stage in execution.plan.stages) else None

        def build(role: Role) -> Pipeline:
            transport = self._hub.transport(role.rank)
            context = RankContext(layout=execution.layout, role=role, transport=transport, device=self.device)
            return assemble(execution, context, groups={}, pace=pace(role) if pace else Pace(), lock=lock)

        self.pipelines = tuple(self._on_stream(role.rank, partial(build, role)) for role in roles)
        self.each(Pipeline.sync_initial_weights)

    def step(self, batch: Batch) -> float:
        """Train on one global batch; see :meth:`stagecut.executor.pipeline.Pipeline.step`."""
        return self.each(lambda pipeline: pipeline.step(batch))[0]

    def evaluate(self, batch: Batch) -> float:
        """See :meth:`stagecut.executor.pipeline.Pipeline.evaluate`."""
        return self.each(lambda pipeline: pipeline.evaluate(batch))[0]

    def each(self, work: Callable[[Pipeline], T]) -> list[T]:
        """Run a function on all ranks at once; once all have stopped, raise the first exception of any of them.

        The team stays usable afterwards.
        """
        futures: list[Future[T]] = [Future() for _ in self.pipelines]
        threads = [
            threading.Thread(target=self._run, args=(work, pipeline, future), name=f"rank{index}", daemon=True)
            for index, (pipeline, future) in enumerate(zip(self.pipelines, futures, strict=True))
        ]
        for thread in threads:
            thread.start()
        try:
            wait(futures)
        except KeyboardInterrupt:  # nobody waits for daemon threads that sleep
            self._hub.break_up()
            raise
        faults = [fault for future in futures if (fault := future.exception())]
        if faults:
            self._hub.mend()
            for pipeline in self.pipelines:
                pipeline.forget_players()
        for fault in sorted(faults, key=lambda fault: isinstance(fault, TeamBrokenError)):
            raise fault
        return [future.result() for future in futures]

    def _run(self, work: Callable[[Pipeline], T], pipeline: Pipeline, future: "Future[T]") -> None:
        try:
            future.set_result(self._on_stream(pipeline.role.rank, lambda: work(pipeline)))
        except BaseException as fault:
            self._hub.break_up()
            future.set_exception(fault)

    def _on_stream(self, rank: int, work: Callable[[], T]) -> T:
        stream: AbstractContextManager[object] = nullcontext()
        if self._streams:
            torch.cuda.set_device(self.device)
            stream = torch.cuda.stream(self._streams[rank])
        with stream:
            return work()
