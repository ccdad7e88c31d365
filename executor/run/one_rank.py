"""A rank of `plan run` that is a process of its own."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from stagecut.executor.ranks import environment
from stagecut.executor.ranks.failures import RankRole, failure_report
from stagecut.executor.ranks.rank_process import end_rank
from stagecut.executor.ranks.world import World
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
