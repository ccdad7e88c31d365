"""Sequences of device groups by dynamic programming over hosts and devices taken.

For every number of stages q and several limits on the time of a stage per micro-batch, the program finds how
far towards layer 0 the last q stages can reach on the devices taken so far, and the groups and cuts that get
them there; of several that reach equally far, those that leave most room for messages. All limits and numbers of stages
advance together, as axes of one array.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.borrowed import borrowed
from stagecut.planner.core.numerics.compiled import compiled
from stagecut.planner.core.numerics.tolerances import ALMOST_ZERO
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import warmup_depths
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.solvers.heuristic.allocation_graph import IDLE, AllocationGraph, LinkedGroup
from stagecut.planner.solvers.heuristic.leeway import leeways
from stagecut.planner.solvers.heuristic.min_max_cut import RULES, Rule, start_within, work_limit
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSequence:
    """Device groups from the first stage to the last, and a cut that keeps every stage within the limit."""

    groups: tuple[PlacedGroup, ...]
    stops: tuple[int, ...]
    limit_s: float


def group_sequences(
    tables: StageTables,
    variant: Variant,
    graph: AllocationGraph,
    limits_s: Floats,
    *,
    count: int,
    with_tails: bool = False,
) -> list[GroupSequence]:
    """At most `count` different sequences, those with the smallest (M - 1 + S) x limit first.

    The limits are seconds per micro-batch and stage, rising, shape (limits,). The time of a stage may include its part
    of gradient all-reduce and optimizer step.
    """
    search = _GroupSearch(tables, variant, graph, limits_s, with_tails=with_tails)
    search.run()
    return search.best(count)


class _GroupSearch:
    """One run of the program.

    With the axes node, stages and limit, `_first_layer` holds how far the stages reach, `_arc_to` the last arc on the
    way there, and `_excess_s` the excess of its stage, see :func:`~.min_max_cut.work_limit`.
    """

    def __init__(
        self, tables: StageTables, variant: Variant, graph: AllocationGraph, limits_s: Floats, *, with_tails: bool
    ) -> None:
        self._tables, self._variant, self._graph, self._limits_s = tables, variant, graph, limits_s
        self._tails = 1 / variant.num_microbatches if with_tails else 0.0
        self._max_stages = min(tables.num_layers, int(graph.num_devices.max()))
        shape = (len(graph.num_devices), self._max_stages + 1, len(limits_s))
        self._first_layer: NDArray[np.int16] = _filled(shape, tables.num_layers + 1, np.int16)
        self._arc_to: NDArray[np.int32] = _filled(shape, -1, np.int32)
        self._excess_s: NDArray[np.float32] = _filled(shape, -np.inf, np.float32)
        self._between = frozenset(graph.between_hosts.tolist())

    def run(self) -> None:
        """Follow every arc."""
        variant, graph = self._variant, self._graph
        if not graph.groups:
            return
        depths = warmup_depths(variant.schedule, self._max_stages, variant.num_microbatches)[::-1]
        groups = [self._costs(group, depths) for group in graph.groups]
        self._first_layer[0, 0] = self._tables.num_layers
        most = np.minimum(graph.num_devices, self._max_stages)
        forward_s, work_s, transfer_s, plain, recomputing = (np.array(costs) for costs in zip(*groups, strict=True))
        forward_share = float(np.min(forward_s[:, -1] / np.maximum(work_s[:, -1], ALMOST_ZERO)))
        limits_s = self._limits_s * leeways(variant, self._max_stages, forward_share)[::-1, None]
        times = Times(work_s, work_s + forward_s, transfer_s, limits_s)
        reached = Reached(self._first_layer, self._arc_to, self._excess_s)
        _follow(graph.arcs, most, times, RULES[variant.schedule], plain, recomputing, reached)

    def best(self, count: int) -> list[GroupSequence]:
        """See :func:`group_sequences`."""
        between = self._graph.between_hosts
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
            node, _, group = self._graph.arcs[self._arc_to[node, stages, limit]].tolist()
            if group != IDLE:
                stages -= 1
                groups.append(PlacedGroup(placement=self._graph.groups[group].placement, opens=opens))
                stops.append(int(self._first_layer[node, stages, limit]))
                opens = node in self._between
        return GroupSequence(groups=tuple(groups), stops=tuple(stops), limit_s=float(self._limits_s[limit]))

    def _costs(
        self, group: LinkedGroup, depths: tuple[int, ...]
    ) -> tuple[Floats, Floats, Floats, NDArray[np.int16], NDArray[np.int16]]:
        """F, work and messages of the layers before each boundary; where stages that fit begin, see `_follow`."""
        variant = self._variant
        table = self._tables.of(variant.share, variant.micro_batch, group.placement)
        transfer_s = np.zeros(self._tables.num_layers + 1)
        transfer_s[:-1] = group.link.transfer_s(variant.micro_batch * self._tables.boundary_bytes[:-1])
        return (
            table.forward_s,
            table.forward_s + table.backward_s + self._tails * table.tail_s,
            transfer_s,
            table.plain.starts_of(depths),
            table.recomputing.starts_of(depths),
        )


def _filled(shape: tuple[int, ...], value: float, dtype: DTypeLike) -> NDArray[Any]:
    """Filled node by node, so that a limit can end it: for thousands of devices it is tens of megabytes."""
    values = np.empty(shape, dtype)
    for of_node in values:
        of_node.fill(value)
    return values


class Times(NamedTuple):
    """Seconds per micro-batch: of the layers before each boundary on each device group, shape (groups, L + 1)."""

    work_s: Floats
    recomputed_s: Floats
    """With recomputation."""
    transfer_s: Floats
    """Of the message over each boundary."""
    limits_s: Floats
    """Most time of a stage, by the number of stages after it, shape (max stages, limits)."""


class Reached(NamedTuple):
    """Axes node, stages and limit; see :class:`_GroupSearch`."""

    first_layer: NDArray[np.int16]
    arc_to: NDArray[np.int32]
    excess_s: NDArray[np.float32]


@compiled
def _follow(
    arcs: Ints,
    most: Ints,
    times: Times,
    rule: Rule,
    in_memory: Ints,
    recomputing_in_memory: Ints,
    reached: Reached,
) -> None:
    """Fill in how far stages reach, and the last arc on the way there, from nodes to those that follow.

    Parameters
    ----------
    most
        Most stages at each node.
    in_memory, recomputing_in_memory
        First layer of a stage that fits in memory, of axes (group, stages after it, stop).
    """
    times, reached = borrowed((times, reached))
    first_layer, arc_to, excess_s = reached
    max_stages, num_limits, num_layers = in_memory.shape[1], first_layer.shape[2], in_memory.shape[2] - 1
    for number in range(len(arcs)):
        tail, head, group = arcs[number]
        for after in range(most[tail] + 1 if group == IDLE else min(most[tail] + 1, max_stages)):
            stages = after if group == IDLE else after + 1
            for limit in range(num_limits):
                # Where the new stage ends, the stages so far begin.
                start = stop = first_layer[tail, after, limit]
                if stop > num_layers:
                    continue
                excess = excess_s[tail, after, limit]
                if group != IDLE:
                    plain, recomputing = in_memory[group, after, stop], recomputing_in_memory[group, after, stop]
                    if min(plain, recomputing) > first_layer[head, stages, limit]:
                        continue
                    work_s, message_s = times.work_s[group], times.transfer_s[group, stop]
                    limit_s = work_limit(rule, times.limits_s[after, limit], message_s, excess)
                    start = start_within(work_s, stop, limit_s)
                    # Recomputation takes time, so it is of use only where memory is short.
                    if plain > start:
                        start = min(plain, max(recomputing, start_within(times.recomputed_s[group], stop, limit_s)))
                        work_s = work_s if start == plain else times.recomputed_s[group]
                    if start >= stop:
                        continue
                    excess = np.float32(work_s[stop] - work_s[start] - limit_s)
                # The first of several arcs that reach equally far with the same excess is kept.
                farthest = first_layer[head, stages, limit]
                if start < farthest or (start == farthest and excess < excess_s[head, stages, limit]):
                    first_layer[head, stages, limit], arc_to[head, stages, limit] = start, number
                    excess_s[head, stages, limit] = excess
