"""Dilated mode: a whole cluster on one machine, each action and message as slow as planned.

The work is real but small. An action ends its planned seconds after it actually began; a message may be used when it
would have arrived, counted from when its action actually ended. Planned times are never added up, so what is measured
is the order in which things really happened, including the overhead of the runtime.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from stagecut.executor.dilated.planned_times import PlannedTimes
from stagecut.executor.dilated.shared_links import SharedLinks, Transfer
from stagecut.executor.dilated.timer import Timer
from stagecut.executor.dilated.transfers import PipelineTransfers, transfers_of
from stagecut.executor.play.pace import Pace
from stagecut.executor.ranks.failures import WaitError
from stagecut.executor.schedule.messages import Message
from stagecut.executor.schedule.rank_layout import RankLayout, Role
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.simulator.action_lists import Action, Op, plan_actions

TIMEOUT_S = 120.0
"""How long a rank waits for the other parts of a message or an all-reduce."""
POLL_S = 3e-4
"""How often it checks."""


class Dilation(Pace):
    """The pace of one rank; see :class:`stagecut.executor.play.pace.Pace`.

    Parameters
    ----------
    transfers
        Those of the role's pipeline.
    links
        Those of all pipelines.
    """

    def __init__(
        self,
        role: Role,
        *,
        times: PlannedTimes,
        transfers: PipelineTransfers,
        links: SharedLinks,
        timer: Timer,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._role, self._times, self._transfers = role, times, transfers
        self._links, self._timer, self._timeout_s = links, timer, timeout_s
        self._update_s = sum(times.update_s[stage] for stage in role.stages)
        self._begin_s = self._end_s = timer.now()
        self._services: dict[tuple[str, int], int] = defaultdict(int)
        """How often each message has been received and the gradients of each stage summed."""
        self._due_s = self._end_s
        """When the next action can begin at the earliest, on the timer's clock."""
        self.time_scale = 1.0
        """Multiplies all planned times; 0: full speed."""
        self.overrun_s = 0.0
        """How much longer than planned the work of the step took. More than a little spoils its times."""
        self.late_s = 0.0
        """How much later than they could have, in total, the actions of the step began and ended."""

    def start(self) -> None:
        """See :class:`Pace`."""
        self.overrun_s = self.late_s = 0.0
        self._due_s = self._timer.now()

    def begin(self) -> None:
        """See :class:`Pace`."""
        self._begin_s = self._timer.now()
        self.late_s += self._begin_s - self._due_s

    def finish(self, kind: str, stage: int, num_samples: int) -> None:
        """See :class:`Pace`."""
        done_s = self._timer.now()
        deadline_s = self._deadline_s(kind, stage, num_samples)
        self.overrun_s += max(0.0, done_s - deadline_s)
        self._timer.wait_until(deadline_s)
        self._end_s = self._due_s = self._timer.now()
        self.late_s += self._end_s - deadline_s

    def sent(self, message: Message) -> None:
        """See :class:`Pace`."""
        self._links.join(self._transfers.messages[message.number], self._end_s, time_scale=self.time_scale)

    def received(self, message: Message) -> None:
        """See :class:`Pace`."""
        transfer = self._transfers.messages[message.number]
        end_s = self._end_of(transfer, ("message", message.number))
        self._due_s = max(self._due_s, end_s)
        self._timer.wait_until(end_s)

    def _deadline_s(self, kind: str, stage: int, num_samples: int) -> float:
        match kind:
            case "sync":
                transfer = self._transfers.syncs[stage]
                self._links.join(transfer, self._begin_s, time_scale=self.time_scale)
                return self._end_of(transfer, ("sync", stage))
            case "update":
                return self._begin_s + self.time_scale * self._update_s
            case _:
                return self._begin_s + self.time_scale * self.planned_s(kind, stage, num_samples)

    def planned_s(self, kind: str, stage: int, num_samples: int) -> float:
        """Planned seconds of an action on so many samples, over all replicas; the time scale is not applied."""
        return self._times.action_s(Op(kind), stage, num_samples)

    def _end_of(self, transfer: Transfer, what: tuple[str, int]) -> float:
        """When a transfer ends; waits until all ranks have joined it, which they do at about the same time."""
        self._services[what] += 1
        give_up_s = self._timer.now() + self._timeout_s
        while (end_s := self._links.end_of(transfer, self._services[what])) is None:
            if self._timer.now() > give_up_s:
                others = tuple(rank for rank in transfer.ranks if rank != self._role.rank)
                raise WaitError(others) from TimeoutError(f"timed out after {self._timeout_s:g} s")
            self._timer.sleep(POLL_S)
        return end_s


def dilation(
    times: PlannedTimes,
    lists: Sequence[Sequence[Action]],
    layout: RankLayout,
    *,
    path: Path,
    timeout_s: float = TIMEOUT_S,
) -> Callable[[Role], Pace]:
    """The pace of every rank, for arbitrary action lists.

    Parameters
    ----------
    lists
        The action lists that are played, one for each device group.
    path
        A file that all ranks of the machine can write; every run needs a new one.
    """

    @cache
    def of_pipeline(pipeline: int) -> PipelineTransfers:
        return transfers_of(times, lists, layout, pipeline=pipeline)

    def pace_of(role: Role) -> Pace:
        transfers = of_pipeline(role.pipeline)
        return Dilation(
            role,
            times=times,
            transfers=transfers,
            links=SharedLinks(path, num_links=transfers.num_links, num_transfers=transfers.num_transfers),
            timer=Timer(),
            timeout_s=timeout_s,
        )

    return pace_of


def dilation_for(plan_file: PlanFile, *, folder: Path, timeout_s: float = TIMEOUT_S) -> Callable[[Role], Pace]:
    """The pace of every rank of a plan.

    Parameters
    ----------
    folder
        Shared by all ranks, which are on one machine; every attempt of a run needs a new one.
    """
    layout = RankLayout.of(plan_file.plan, plan_file.problem.cluster)
    times = PlannedTimes.of(CostModel(plan_file.problem).plan(plan_file.plan))
    return dilation(times, plan_actions(plan_file.plan), layout, path=folder / "links", timeout_s=timeout_s)
