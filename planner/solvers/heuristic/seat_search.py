"""Which device groups, in which order: a dynamic program over hosts and devices taken.

For every number of stages q and a few limits of the time of a stage per micro-batch, it finds how far
towards layer 0 the last q stages can come on the devices taken so far, with the groups and
the cuts that bring them there. All limits and numbers of stages are looked at together.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import warmup_depths
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.solvers.heuristic.balance import TOLERANCE, work_limits
from stagecut.planner.solvers.heuristic.host_steps import IDLE, HostSteps, Taking
from stagecut.planner.solvers.heuristic.stage_tables import Capacity, StageTables


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """Device groups from the first stage to the last, and a cut that keeps to the limit."""

    seats: tuple[PlacedGroup, ...]
    stops: tuple[int, ...]
    limit_s: float


def seat_sequences(
    tables: StageTables, variant: Variant, steps: HostSteps, limits_s: Floats, *, count: int
) -> list[Sequence]:
    """The sequences with the least (M - 1 + S) x limit.

    Parameters
    ----------
    limits_s
        Seconds per micro-batch and stage, rising, shape (limits,).
    count
        How many to return, at most.
    """
    search = _SeatSearch(tables, variant, steps, limits_s)
    search.run()
    return search.best(count)


class _SeatSearch:
    """One run; `first_layer` and `choice` have the axes node, stages, limit."""

    def __init__(self, tables: StageTables, variant: Variant, steps: HostSteps, limits_s: Floats) -> None:
        self._tables, self._variant, self._steps, self._limits_s = tables, variant, steps, limits_s
        self._nowhere = tables.num_layers + 1
        self._max_stages = min(tables.num_layers, max(steps.num_devices))
        shape = (len(steps.num_devices), self._max_stages + 1, len(limits_s))
        self._first_layer = np.full(shape, self._nowhere, dtype=np.int16)
        self._choice = np.full(shape, -1, dtype=np.int32)
        depths = warmup_depths(variant.schedule, self._max_stages, variant.num_microbatches)[::-1]
        self._depths, depth_row = np.unique(depths, return_inverse=True)
        self._row = (depth_row[:, None] * len(limits_s) + np.arange(len(limits_s))) * (self._nowhere + 1)
        self._between = frozenset(steps.between_hosts)

    def run(self) -> None:
        """Take every step."""
        first_layer, choice, row = self._first_layer, self._choice, self._row
        first_layer[0, 0] = self._tables.num_layers
        starts = [self._start_table(taking) for taking in self._steps.takings]
        most = [min(devices, self._max_stages) + 1 for devices in self._steps.num_devices]
        for number, (tail, head, taking) in enumerate(self._steps.steps):
            reached: NDArray[np.integer[Any]] = first_layer[tail, : most[tail]]
            shift = 0
            if taking != IDLE:
                reached, shift = reached[: self._max_stages], 1
                reached = starts[taking].take(row[: len(reached)] + reached)
            target = (head, slice(shift, shift + len(reached)))
            better = reached < first_layer[target]
            np.copyto(first_layer[target], reached, where=better)
            np.copyto(choice[target], number, where=better)

    def best(self, count: int) -> list[Sequence]:
        """The sequences to return, without repetitions."""
        between = np.array(self._steps.between_hosts)
        done = self._first_layer[between] == 0
        stages, limit = np.nonzero(done.any(axis=0))
        value_s = (self._variant.num_microbatches - 1 + stages) * self._limits_s[limit]
        found = dict[tuple[PlacedGroup, ...], Sequence]()
        for index in np.lexsort((stages, value_s)):
            where = stages[index], limit[index]
            sequence = self._trace(int(between[np.argmax(done[:, *where])]), *where)
            found.setdefault(sequence.seats, sequence)
            if len(found) == count:
                break
        return list(found.values())

    def _trace(self, node: int, stages: int, limit: int) -> Sequence:
        """Back from the first stage of the pipeline to the last."""
        seats, stops, opens = [], [], True
        while node != 0:
            node, _, taking = self._steps.steps[self._choice[node, stages, limit]]
            if taking != IDLE:
                stages -= 1
                seats.append(PlacedGroup(placement=self._steps.takings[taking].placement, opens=opens))
                stops.append(int(self._first_layer[node, stages, limit]))
                opens = node in self._between
        return Sequence(seats=tuple(seats), stops=tuple(stops), limit_s=float(self._limits_s[limit]))

    def _start_table(self, taking: Taking) -> Ints:
        """First layer of a stage, flat, of axes (distinct depth, limit, stop); `nowhere` where none will do."""
        variant, num_layers = self._variant, self._tables.num_layers
        table = self._tables.of(variant.share, variant.micro_batch, taking.placement)
        transfer_s = np.zeros(num_layers + 1)
        sent_bytes = variant.micro_batch * self._tables.boundary_bytes[:-1]
        transfer_s[:-1] = taking.link.transfer_s(sent_bytes)
        limits_s = work_limits(variant.schedule, self._limits_s[:, None], transfer_s)
        work_s = table.forward_s + table.backward_s
        start = np.minimum(
            np.maximum(self._starts_in_memory(table.plain), _starts_in_time(work_s, limits_s)),
            np.maximum(self._starts_in_memory(table.recomputing), _starts_in_time(work_s + table.forward_s, limits_s)),
        )
        start[start >= np.arange(num_layers + 1, dtype=np.int16)] = self._nowhere
        nowhere = np.full((*start.shape[:2], 1), self._nowhere, dtype=np.int16)
        return np.concatenate((start, nowhere), axis=2).ravel()

    def _starts_in_memory(self, capacity: Capacity) -> Ints:
        """Shape (distinct depths, 1, L + 1)."""
        return np.array([capacity.starts(depth) for depth in self._depths.tolist()])[:, None]


def _starts_in_time(work_s: Floats, limits_s: Floats) -> Ints:
    """Shape (limits, L + 1)."""
    least_s = work_s - limits_s - TOLERANCE * work_s[-1]
    starts: Ints = np.searchsorted(work_s, least_s.ravel()).astype(np.int16).reshape(limits_s.shape)
    return starts
