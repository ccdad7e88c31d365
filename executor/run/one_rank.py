"""A rank of `plan run`: a process of its own, or a thread."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from stagecut.executor.ranks import environment
from stagecut.executor.ranks.failures import RankRole, failure_report
from stagecut.executor.ranks.rank_process import end_rank
from stagecut.executor.ranks.root_cause import root_cause
from stagecut.executor.ranks.world import World
from stagecut.executor.transport.threads import TeamBrokenError
from stagecut.planner.simulator.action_lists import Action

T = TypeVar("T")


class Layout(Protocol):
    """All ranks of a run."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        ...

    @property
    def names(self) -> list[str]:
        """What to call each rank in messages."""
        ...

    @property
    def roles(self) -> Sequence[RankRole]:
        """What each rank is."""
        ...


@contextmanager
def failures_of(
    role: RankRole, layout: Layout, *, timeout_s: float, action: Callable[[], Action | None] = lambda: None
) -> Iterator[None]:
    """Let what a thread raises say which rank it is, unless it only noticed that another one had failed."""
    try:
        yield
    except TeamBrokenError:
        raise
    except Exception as fault:
        report = failure_report(fault, role, action=action())
        raise root_cause([report], {}, names=layout.names, timeout_s=timeout_s) from fault


def be_rank(
    work: Callable[[World], T | None],
    *,
    layout: Layout,
    join: Callable[[], World],
    finish: Callable[[T], None],
    action: Callable[[], Action | None] = lambda: None,
) -> None:
    """Join the others and work; a failure is reported and ends the process.

    Parameters
    ----------
    work
        Leaves the world in the end; what it returns on the rank that answers is given to `finish`, which must not be
        called before, because a rank that dies while it leaves fails the run.
    action
        What the rank is doing.
    """
    world = None
    try:
        world = join()
        outcome = work(world)
        if outcome is not None:
            finish(outcome)
    except Exception as fault:
        rank = environment.rank()
        role = layout.roles[rank] if rank < layout.world_size else None
        end_rank(failure_report(fault, role, action=action(), rank=rank), world, names=layout.names)
