"""What actions and ranks are called in messages."""

from collections.abc import Sequence

from stagecut.planner.simulator.action_lists import Action


def action_label(action: Action) -> str:
    """An action in words, for example `F of samples [4, 8) on stage 1`."""
    return f"{action.op} of samples [{action.lo}, {action.hi}) on stage {action.stage}"


def ranks_label(ranks: Sequence[int]) -> str:
    """Ranks in words, for example `rank 3`, or `ranks 0, 1 and 5`."""
    *first, last = map(str, ranks)
    return f"ranks {', '.join(first)} and {last}" if first else f"rank {last}"
