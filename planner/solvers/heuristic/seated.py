"""Stages on a given sequence of seats, for any number of ways to cut the layers at once."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.core.cluster import Link
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import warmup_depths
from stagecut.planner.cost.links import half_transfer_s, link_between_hosts, link_within_host
from stagecut.planner.network.arrangement import Arrangement, arrange
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.solvers.heuristic.stage_tables import StageTables


@dataclass(frozen=True, slots=True, kw_only=True)
class CutCosts:
    """Costs of n cuts into S stages each; infinite where a stage is empty or does not fit in memory."""

    forward_s: Floats
    """Shape (n, S)."""
    backward_s: Floats
    """Recomputation included, shape (n, S)."""
    tail_s: Floats
    """Gradient all-reduce and optimizer step, shape (n, S)."""
    transfer_s: Floats
    """Shape (n, S - 1)."""
    first_s: Floats
    """Least seconds of the first part of a forward, shape (n, S): half of it where the job may slice."""
    first_transfer_s: Floats
    """The same of a message, shape (n, S - 1)."""


class SeatedStages:
    """What stages on these seats cost, wherever the layers are cut.

    Attributes
    ----------
    depth
        Warm-up depth of each stage, shape (S,).
    plain_start, recomputing_start
        For every stage and stop, the first start that fits in memory without and with
        recomputation, shape (S, L + 1).
    work_s
        F + B of the layers before each boundary, without recomputation, shape (S, L + 1).
    line_load
        Messages per micro-batch that each shared line carries for each boundary, shape (lines, S - 1).
    """

    def __init__(self, tables: StageTables, variant: Variant, seats: Sequence[PlacedGroup]) -> None:
        self.variant, self.seats, self.num_layers = variant, tuple(seats), tables.num_layers
        columns = [tables.of(variant.share, variant.micro_batch, seat.placement) for seat in seats]
        depths = warmup_depths(variant.schedule, len(seats), variant.num_microbatches)
        self.depth = np.array(depths)
        self.forward_s = np.array([column.forward_s for column in columns])
        self.backward_s = np.array([column.backward_s for column in columns])
        self.work_s = self.forward_s + self.backward_s
        self.plain_start = np.array([c.plain.starts(k) for c, k in zip(columns, depths, strict=True)])
        self.recomputing_start = np.array([c.recomputing.starts(k) for c, k in zip(columns, depths, strict=True)])
        self._tail_s = np.array([column.tail_s for column in columns])
        self._tail_latency_s = np.array([column.tail_latency_s for column in columns])
        self._tail_beyond_s = {
            stage: column.tail_beyond_s for stage, column in enumerate(columns) if column.tail_beyond_s is not None
        }
        self._half_s = np.array([column.half_s for column in columns])
        job = tables.costs.problem.job
        self._overhead_s, self._may_slice = job.action_overhead_s, job.may_slice(variant.schedule, variant.micro_batch)
        self.transfer_s, self._half_transfer_s, self.line_load = _transfers(tables, variant, self.seats)
        self._row = np.arange(len(columns)) * (self.num_layers + 1)

    @property
    def num_stages(self) -> int:
        """S."""
        return len(self.seats)

    def layout(self, stops: Ints) -> Arrangement:
        """The layout of one cut, stops of shape (S,)."""
        return arrange(self.seats, stops)

    def costs(self, stops: Ints) -> CutCosts:
        """Costs of many cuts.

        Parameters
        ----------
        stops
            Shape (n, S), the last one L.
        """
        last = self._row + stops
        starts = np.zeros_like(stops)
        starts[:, 1:] = stops[:, :-1]
        first = self._row + starts
        forward_s = self.forward_s.take(last) - self.forward_s.take(first)
        backward_s = self.backward_s.take(last) - self.backward_s.take(first)
        recompute = starts < self.plain_start.take(last)
        backward_s += np.where(recompute, forward_s, 0.0)
        backward_s[(starts >= stops) | (recompute & (starts < self.recomputing_start.take(last)))] = np.inf
        tail_s = self._tail_s.take(last) - self._tail_s.take(first) + self._tail_latency_s
        for stage, beyond_s in self._tail_beyond_s.items():
            tail_s[:, stage] += beyond_s[starts[:, stage], stops[:, stage]]
        transfer_s = self.transfer_s.take(last[:, :-1])
        first_s, first_transfer_s = forward_s, transfer_s
        if self._may_slice:
            half_s = np.maximum(self._half_s.take(last) - self._half_s.take(first), forward_s / 2)
            first_s = np.minimum(forward_s, half_s + self._overhead_s)
            first_transfer_s = np.minimum(transfer_s, self._half_transfer_s.take(last[:, :-1]))
        return CutCosts(
            forward_s=forward_s,
            backward_s=backward_s,
            tail_s=tail_s,
            transfer_s=transfer_s,
            first_s=first_s,
            first_transfer_s=first_transfer_s,
        )


_Line = tuple[int, str, int]
"""Host, kind and island."""


def _transfers(tables: StageTables, variant: Variant, seats: tuple[PlacedGroup, ...]) -> tuple[Floats, Floats, Floats]:
    """Seconds over each boundary at any layer, of whole and of half messages, and the lines they share."""
    cluster = tables.costs.of(variant.share).cluster
    message_bytes = variant.micro_batch * tables.boundary_bytes
    rows, halves, users, host = [], [], dict[_Line, list[int]](), 0
    for index, (sender, receiver) in enumerate(itertools.pairwise(seats)):
        link, lines = _link(tables, variant, sender, receiver), list[_Line]()
        if receiver.opens:
            lines = [(host, "nic", 0), (host + 1, "nic", 0)]
            host += 1
        elif sender.placement.island != receiver.placement.island:
            lines = [(host, "bridge", 0)] * 2
        elif cluster.servers[sender.placement.server_class].islands[sender.placement.island].shared:
            lines = [(host, "fabric", sender.placement.island)] * 2
        for line in lines:
            users.setdefault(line, []).append(index)
        rows.append(link.transfer_s(message_bytes))
        halves.append(half_transfer_s(link, message_bytes))
    load = [np.bincount(line, minlength=len(rows)) for line in users.values() if len(line) > 1]
    shape = (len(rows), tables.num_layers + 1)
    line_load = np.array(load, dtype=float).reshape(len(load), len(rows))
    return np.array(rows).reshape(shape), np.array(halves).reshape(shape), line_load


def _link(tables: StageTables, variant: Variant, sender: PlacedGroup, receiver: PlacedGroup) -> Link:
    cluster, first, second = tables.costs.of(variant.share).cluster, sender.placement, receiver.placement
    if receiver.opens:
        return link_between_hosts(
            cluster, (first.server_class, first.num_hosts), (second.server_class, second.num_hosts)
        )
    return link_within_host(cluster, first.server_class, first.island, second.island)
