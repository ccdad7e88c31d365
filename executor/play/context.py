"""The context shared by the parts of one rank."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from stagecut.executor.schedule.rank_layout import RankLayout, Role
from stagecut.executor.transport.interface import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class RankContext:
    """One rank of a plan, its device, and its connection to the other ranks."""

    layout: RankLayout
    role: Role
    transport: Transport
    device: torch.device

    @property
    def everyone(self) -> tuple[int, ...]:
        """All ranks."""
        return tuple(range(self.layout.world_size))

    def all_gather(self, values: Sequence[float], ranks: Sequence[int] = (), *, exact: bool = True) -> torch.Tensor:
        """Numbers of several ranks, shape (ranks, values): the sum of tables in which each rank fills its own row.

        Parameters
        ----------
        ranks
            Those that take part, this one included; empty: all.
        exact
            Whether the values are integers; otherwise they travel in float64.
        """
        group = tuple(ranks) or self.everyone
        table = torch.zeros(len(group), len(values), dtype=torch.int64 if exact else torch.float64)
        table[group.index(self.role.rank)] = torch.tensor(values, dtype=table.dtype)
        table = table.to(self.device)
        self.transport.sum(table, group)
        return table.cpu()
