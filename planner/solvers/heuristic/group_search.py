"""Sequences of device groups by dynamic programming over hosts and devices taken.

For every number of stages q and several limits on the time of a stage per micro-batch, the program finds how
far towards layer 0 the last q stages can reach on the devices taken so far, and the groups and cuts that get
them there. All limits and numbers of stages advance together, as axes of one array.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import warmup_depths
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.solvers.heuristic.allocation_graph import IDLE, AllocationGraph, LinkedGroup
from stagecut.planner.solvers.heuristic.min_max_cut import earliest_starts, work_limits
from stagecut.planner.solvers.heuristic.stage_cost_tables import Capacity, StageTables


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSequence:
    """Device groups from the first stage to the last, and a cut that keeps every stage within the limit."""

    groups: tuple[PlacedGroup, ...]
    stops: tuple[int, ...]
    limit_s: float


def group_sequences(
    tables: StageTables, variant: Variant, graph: AllocationGraph, limits_s: Floats, *, count: int
) -> list[GroupSequence]:
    """At most `count` different sequences, those with the smallest (M - 1 + S) x limit first.

    The limits are seconds per micro-batch and stage, rising, shape (limits,).
    """
    search = _GroupSearch(tables, variant, graph, limits_s)
    search.run()
    return search.best(count)


class _GroupSearch:
    """One run of the program.

    With the axes node, stages and limit, `_first_layer` holds how far the stages reach, and `_arc_to` the last arc
    on the way there. `_row` is where the row of a number of stages and a limit begins in the tables of
    :meth:`_start_table`.
    """

    def __init__(self, tables: StageTables, variant: Variant, graph: AllocationGraph, limits_s: Floats) -> None:
        self._tables, self._variant, self._graph, self._limits_s = tables, variant, graph, limits_s
        self._nowhere = tables.num_layers + 1
        self._max_stages = min(tables.num_layers, max(graph.num_devices))
        shape = (len(graph.num_devices), self._max_stages + 1, len(limits_s))
        self._first_layer = np.full(shape, self._nowhere, dtype=np.int16)
        self._arc_to = np.full(shape, -1, dtype=np.int32)
        depths = warmup_depths(variant.schedule, self._max_stages, variant.num_microbatches)[::-1]
        self._depths, depth_row = np.unique(depths, return_inverse=True)
        self._row = (depth_row[:, None] * len(limits_s) + np.arange(len(limits_s))) * (self._nowhere + 1)
        self._between = frozenset(graph.between_hosts)

    def run(self) -> None:
        """Follow every arc."""
        first_layer, arc_to, row = self._first_layer, self._arc_to, self._row
        first_layer[0, 0] = self._tables.num_layers
        starts = [self._start_table(group) for group in self._graph.groups]
        most = [min(devices, self._max_stages) + 1 for devices in self._graph.num_devices]
        for number, (tail, head, group) in enumerate(self._graph.arcs):
            reached: NDArray[np.integer[Any]] = first_layer[tail, : most[tail]]
            shift = 0
            if group != IDLE:
                # Where the new stage ends, the stages so far begin: that is the column of its start table.
                reached, shift = reached[: self._max_stages], 1
                reached = starts[group].take(row[: len(reached)] + reached)
            # A stage moves from q to q + 1 stages; the first of several arcs that reach equally far is kept.
            target = (head, slice(shift, shift + len(reached)))
            better = reached < first_layer[target]
            np.copyto(first_layer[target], reached, where=better)
            np.copyto(arc_to[target], number, where=better)

    def best(self, count: int) -> list[GroupSequence]:
        """See :func:`group_sequences`."""
        between = np.array(self._graph.between_hosts)
        done = self._first_layer[between] == 0
        stages, limit = np.nonzero(done.any(axis=0))
        value_s = (self._variant.num_microbatches - 1 + stages) * self._limits_s[limit]
        found = dict[tuple[PlacedGroup, ...], GroupSequence]()
        for index in np.lexsort((stages, value_s)):
            where = stages[index], limit[index]
            sequence = self._trace(int(between[np.argmax(done[:, *where])]), *where)
            found.setdefault(sequence.groups, sequence)
            if len(found) == count:
                break
        return list(found.values())

    def _trace(self, node: int, stages: int, limit: int) -> GroupSequence:
        """Walk back from the first stage of the pipeline to the last."""
        groups, stops, opens = [], [], True
        while node != 0:
            node, _, group = self._graph.arcs[self._arc_to[node, stages, limit]]
            if group != IDLE:
                stages -= 1
                groups.append(PlacedGroup(placement=self._graph.groups[group].placement, opens=opens))
                stops.append(int(self._first_layer[node, stages, limit]))
                opens = node in self._between
        return GroupSequence(groups=tuple(groups), stops=tuple(stops), limit_s=float(self._limits_s[limit]))

    def _start_table(self, group: LinkedGroup) -> NDArray[np.integer[Any]]:
        """First layer of a stage on the group, flat, of axes (distinct depth, limit, stop); `nowhere` if none fits."""
        variant, num_layers = self._variant, self._tables.num_layers
        table = self._tables.of(variant.share, variant.micro_batch, group.placement)
        transfer_s = np.zeros(num_layers + 1)
        transfer_s[:-1] = group.link.transfer_s(variant.micro_batch * self._tables.boundary_bytes[:-1])
        stop = np.arange(num_layers + 1)
        start = earliest_starts(
            table.forward_s + table.backward_s,
            table.forward_s,
            stop,
            work_limits(variant.schedule, self._limits_s[:, None], transfer_s),
            plain_start=self._starts_in_memory(table.plain),
            recomputing_start=self._starts_in_memory(table.recomputing),
        )
        start[start >= stop] = self._nowhere
        nowhere = np.full((*start.shape[:2], 1), self._nowhere)
        first_layers: NDArray[np.integer[Any]] = np.concatenate((start, nowhere), axis=2).astype(np.int16)
        return first_layers.ravel()

    def _starts_in_memory(self, capacity: Capacity) -> Ints:
        """Shape (distinct depths, 1, L + 1)."""
        return np.array([capacity.starts(depth) for depth in self._depths.tolist()])[:, None]
