"""Dilated mode: a whole cluster on one machine, each action and message as slow as planned.

The work is real and small. An action ends its planned seconds after the moment at which it began, by
the clock; a message may be used when it would have arrived, counted from the moment at which its action
ended, by the clock. No planned time is added to another one, so that what is measured is the order in
which things really happened, with all that the runtime takes beside.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from stagecut.executor.dilated.bookings import Bookings, bookings_of
from stagecut.executor.dilated.planned_times import PlannedTimes
from stagecut.executor.dilated.shared_links import Booking, SharedLinks
from stagecut.executor.dilated.timer import HostTimer, Timer
from stagecut.executor.play.layout import Layout, Role
from stagecut.executor.play.messages import Message
from stagecut.executor.play.pace import Pace
from stagecut.executor.run.faults import WaitError
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.simulator.action_lists import Action, Op, plan_actions

TIMEOUT_S = 120.0
"""How long a rank waits for the parts that others have in a message or an all-reduce."""
POLL_S = 3e-4
"""How often it looks."""


class Dilation:
    """The pace of one rank; see :class:`executor.play.pace.Pace`.

    Parameters
    ----------
    bookings
        Of the role's pipeline.
    links
        Those of all ranks.
    """

    def __init__(
        self,
        role: Role,
        *,
        times: PlannedTimes,
        bookings: Bookings,
        links: SharedLinks,
        timer: Timer,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._role, self._times, self._bookings = role, times, bookings
        self._links, self._timer, self._timeout_s = links, timer, timeout_s
        self._update_s = sum(times.update_s[stage] for stage in role.stages)
        self._begin_s = self._end_s = timer.now()
        self._services: dict[tuple[str, int], int] = defaultdict(int)
        """How often each message has been received, and the gradients of each stage been summed."""
        self._due_s = self._end_s
        """When the next action can begin at the earliest."""
        self.time_scale = 1.0
        """Multiplies all planned times; 0: everything as fast as it goes."""
        self.overrun_s = 0.0
        """Of the step: how much longer than planned its work really took. More than a little spoils its times."""
        self.late_s = 0.0
        """Of the step: how much later than they could have, all in all, its actions began, and ended."""

    def start(self) -> None:
        """See :class:`executor.play.pace.Pace`."""
        self.overrun_s = self.late_s = 0.0
        self._due_s = self._timer.now()

    def begin(self) -> None:
        """See :class:`executor.play.pace.Pace`."""
        self._begin_s = self._timer.now()
        self.late_s += self._begin_s - self._due_s

    def finish(self, kind: str, stage: int, num_samples: int) -> None:
        """See :class:`executor.play.pace.Pace`."""
        done_s = self._timer.now()
        deadline_s = self._deadline_s(kind, stage, num_samples)
        self.overrun_s += max(0.0, done_s - deadline_s)
        self._timer.wait_until(deadline_s)
        self._end_s = self._due_s = self._timer.now()
        self.late_s += self._end_s - deadline_s

    def sent(self, message: Message) -> None:
        """See :class:`executor.play.pace.Pace`."""
        self._links.join(self._bookings.transfers[message.number], self._end_s, time_scale=self.time_scale)

    def received(self, message: Message) -> None:
        """See :class:`executor.play.pace.Pace`."""
        booking = self._bookings.transfers[message.number]
        end_s = self._end_of(booking, ("message", message.number))
        self._due_s = max(self._due_s, end_s)
        self._timer.wait_until(end_s)

    def _deadline_s(self, kind: str, stage: int, num_samples: int) -> float:
        match kind:
            case "sync":
                booking = self._bookings.syncs[stage]
                self._links.join(booking, self._begin_s, time_scale=self.time_scale)
                return self._end_of(booking, ("sync", stage))
            case "update":
                return self._begin_s + self.time_scale * self._update_s
            case _:
                return self._begin_s + self.time_scale * self.planned_s(kind, stage, num_samples)

    def planned_s(self, kind: str, stage: int, num_samples: int) -> float:
        """Of an action on so many samples, over all replicas; as planned, whatever the time scale."""
        return self._times.action_s(Op(kind), stage, num_samples)

    def _end_of(self, booking: Booking, what: tuple[str, int]) -> float:
        """When a booking ends, as soon as all have joined it: they do at about the same time."""
        self._services[what] += 1
        give_up_s = self._timer.now() + self._timeout_s
        while (end_s := self._links.end_of(booking, self._services[what])) is None:
            if self._timer.now() > give_up_s:
                others = tuple(rank for rank in booking.ranks if rank != self._role.rank)
                raise WaitError(others) from TimeoutError(f"timed out after {self._timeout_s:g} s")
            self._timer.sleep(POLL_S)
        return end_s


def dilation(
    times: PlannedTimes,
    lists: Sequence[Sequence[Action]],
    layout: Layout,
    *,
    path: Path,
    timeout_s: float = TIMEOUT_S,
) -> Callable[[Role], Pace]:
    """What makes the pace of every rank, for action lists of any kind.

    Parameters
    ----------
    lists
        One action list for each device group, those that are played.
    path
        A file that all ranks can write, on one machine; every run needs a new one.
    """

    @cache
    def booked(pipeline: int) -> Bookings:
        return bookings_of(times, lists, layout, pipeline=pipeline)

    def pace_of(role: Role) -> Pace:
        bookings = booked(role.pipeline)
        return Dilation(
            role,
            times=times,
            bookings=bookings,
            links=SharedLinks(path, num_links=bookings.num_links, num_bookings=bookings.num_bookings),
            timer=HostTimer(),
            timeout_s=timeout_s,
        )

    return pace_of


def dilation_for(
    plan_file: PlanFile,
    layout: Layout,
    *,
    folder: Path,
    time_scale: float = 1.0,
    timeout_s: float = TIMEOUT_S,
) -> Callable[[Role], Pace]:
    """What makes the pace of every rank of a plan.

    Parameters
    ----------
    folder
        Common to all ranks, which are on one machine; every run, and every attempt at it, needs a new one.
    time_scale
        Multiplies all planned times, and so the predicted iteration time: the real work must take
        less time than planned.

    Raises
    ------
    BadInputError
        If the time scale is not positive.
    """
    times = PlannedTimes.of(CostModel(plan_file.problem).plan(plan_file.plan)).scaled(time_scale)
    return dilation(times, plan_actions(plan_file.plan), layout, path=folder / "links", timeout_s=timeout_s)
