"""The bound rows of :mod:`stagecut.planner.simulator.bounds`, linear in the arcs of a stage network.

A path x (0/1 per arc) is a plan. Two prefixes over its arcs,

    E_l = sum of F + B + 2 c + g_0 over stages that end, and transfers that happen, at or before l,
    D_l = the same sum of F + c,

make every family one pattern. (Where the job may slice micro-batches, the F of stages before the last and
the c of activations are those of the first half: `Arcs.first_s`. Where it states how many, the extra time of
their halves is part of the cost in busy, sync and flush rows: `Arcs.halving_s`.) For a layer l, covered by exactly one
stage, and for an inner boundary j,

    row_l = e E_l + e' E_L + d D_l + d' D_L + sum of cost over the arcs that cover l,
    row_j = e' E_L + d' D_L + sum of ending over arcs that stop at j + sum of cost over arcs that start at j.

No big-M is needed: exactly one stage covers a layer. A row of a boundary that is not cut reduces
to the end of its first micro-batch's round trip, which no plan beats either.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.schedule import Schedule, pair_loops
from stagecut.planner.network.allreduce_queues import AllReduceQueues, build_queues
from stagecut.planner.network.link_loads import LinkLoads, build_loads
from stagecut.planner.network.stage_network import StageNetwork

SHARED_FAMILIES = ("busy", "fill", "sync")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family of rows: coefficients of the prefixes, and extra cost per arc."""

    name: str
    cost_s: Floats
    """Per arc, in the row of every layer it covers or, in a family of boundaries, of the one where it starts."""
    ending_s: Floats | None = None
    """Per arc, in the row of the boundary where it stops; None in a family of layers."""
    target: int = 0
    """0: the iteration time; 1 and 2: the forward and the backward half of a flush."""
    round_trip_before: int = 0
    """Coefficient of E_l."""
    round_trip_total: int = 0
    """Coefficient of E_L."""
    forward_before: int = 0
    """Coefficient of D_l."""
    forward_total: int = 0
    """Coefficient of D_L."""

    def indices(self, num_layers: int) -> slice:
        """The layers, or the inner boundaries, that have a row."""
        return slice(0 if self.ending_s is None else 1, num_layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """All families over one network. Rows of a family are indexed 0 .. L; see :meth:`Family.indices`."""

    network: StageNetwork
    round_trip: Floats
    """Share of each arc in E, in seconds, shape (A,)."""
    forward: Floats
    """Share of each arc in D, in seconds, shape (A,)."""
    families: tuple[Family, ...]
    fill: Floats
    """What each stage itself adds to its fill row, whatever floor the slowest one has, shape (A,)."""
    floor_s: float = 0.0
    """What the slowest stage adds at least, see :meth:`with_floor`."""
    queues: AllReduceQueues | None = None
    """All-reduces that queue; only labels and arc fixing use them."""
    loads: LinkLoads | None = None
    """Messages that share links; as above."""

    @property
    def num_targets(self) -> int:
        """1, or 3 where forward and backward are bounded separately."""
        return 1 + max((family.target for family in self.families), default=0)

    @property
    def costs_s(self) -> dict[str, Floats]:
        """`cost_s` of every family by name."""
        return {family.name: family.cost_s for family in self.families}

    @property
    def bottleneck(self) -> Floats:
        """The largest term that a row of each arc adds to the round trip of the whole path, shape (A,)."""
        costs_s = self.costs_s
        largest = np.maximum(costs_s["fill"], costs_s.get("link", -np.inf))
        if "flush forward" in costs_s:
            largest = np.maximum(largest, costs_s["flush forward"] + costs_s["flush backward"])
        return largest

    def counting(self, least: Ints, largest: Ints) -> "Rows":
        """The same rows, whose arcs have these positions; they do not count where `least` exceeds `largest`."""
        return replace(self, network=self.network.narrowed(least, largest))

    def arc_costs(self, multipliers: Floats) -> Floats:
        """Cost of every arc when each row is charged with its multiplier, shape (A,).

        Multipliers are non-negative, and zero for rows that do not exist; shape (families, L + 1).
        """
        arcs = self.network.arcs
        cost = np.zeros(len(arcs))
        for family, weights in zip(self.families, multipliers, strict=True):
            if not weights.any():
                continue
            # An arc that stops at j counts in E_l, and so in row l, for every l >= j.
            before_index = np.concatenate(([0.0], np.cumsum(weights)))
            total = before_index[-1]
            reach = (total - before_index)[arcs.stop]
            cost += self.round_trip * (family.round_trip_before * reach + family.round_trip_total * total)
            cost += self.forward * (family.forward_before * reach + family.forward_total * total)
            if family.ending_s is None:
                cost += family.cost_s * (before_index[arcs.stop] - before_index[arcs.start])
            else:
                cost += family.ending_s * weights[arcs.stop]
                cost += family.cost_s * weights[arcs.start]
        return cost

    def value(self, path: Ints) -> float:
        """Largest row of a path: the lower bound on that plan's iteration time; infinite for no path."""
        arcs, num_layers = self.network.arcs, self.network.num_layers
        halves = np.full(self.num_targets, -np.inf)
        if len(path) == 0:
            return math.inf
        for family in self.families:
            rows = np.zeros(num_layers + 1)
            for arc in path:
                start, stop = arcs.start[arc], arcs.stop[arc]
                round_trip, forward = self.round_trip[arc], self.forward[arc]
                rows += family.round_trip_total * round_trip + family.forward_total * forward
                rows[stop:] += family.round_trip_before * round_trip + family.forward_before * forward
                if family.ending_s is None:
                    rows[start:stop] += family.cost_s[arc]
                else:
                    rows[stop] += family.ending_s[arc]
                    rows[start] += family.cost_s[arc]
            largest = rows[family.indices(num_layers)].max(initial=-np.inf)
            halves[family.target] = max(halves[family.target], largest)
        return float(max(halves[0], halves[1:].sum() if len(halves) > 1 else -np.inf))

    def with_floor(self, bottleneck_s: float) -> "Rows":
        """The rows of plans whose slowest stage adds at least that much to the total: all their fill rows do."""
        stages = self.network.arcs.is_stage
        families = tuple(
            replace(family, cost_s=np.where(stages, np.maximum(family.cost_s, bottleneck_s), 0.0))
            if family.name == "fill"
            else family
            for family in self.families
        )
        return replace(self, families=families, floor_s=bottleneck_s)

    def rebuilt(self, network: StageNetwork) -> "Rows":
        """All families, or only the shared ones as here, with the same floor, over another network of the variant."""
        return build_rows(network, shared_only="drain" not in self.costs_s).with_floor(self.floor_s)

    def restricted(self, network: StageNetwork, kept: Ints) -> "Rows":
        """The rows over a network that holds the `kept` arcs of this one."""
        queues = None if self.queues is None else self.queues.take(kept)
        loads = None if self.loads is None else self.loads.take(kept)
        return replace(self._mapped(lambda values: values[kept]), network=network, queues=queues, loads=loads)

    def merged(self) -> "Rows":
        """The same rows once each, without queues and loads: neighbouring layers that the same arcs cover are one.

        A boundary at which no arc starts or stops loses its rows: they are the round trip of the whole path, which no
        fill row is below.
        """
        arcs = self.network.arcs
        boundaries = np.unique(np.concatenate((arcs.start, arcs.stop)))
        start, stop = np.searchsorted(boundaries, arcs.start), np.searchsorted(boundaries, arcs.stop)
        network = replace(self.network, arcs=replace(arcs, start=start, stop=stop), num_layers=len(boundaries) - 1)
        return replace(self, network=network, queues=None, loads=None)

    def scaled(self, factor: float) -> "Rows":
        """All times multiplied by `factor`, without queues and loads."""
        mapped = self._mapped(lambda values: values * factor)
        return replace(mapped, floor_s=self.floor_s * factor, queues=None, loads=None)

    def _mapped(self, change: Callable[[Floats], Floats]) -> "Rows":
        families = tuple(
            replace(
                family,
                cost_s=change(family.cost_s),
                ending_s=None if family.ending_s is None else change(family.ending_s),
            )
            for family in self.families
        )
        return replace(
            self,
            round_trip=change(self.round_trip),
            forward=change(self.forward),
            families=families,
            fill=change(self.fill),
        )


def build_rows(network: StageNetwork, *, shared_only: bool = False) -> Rows:
    """Every family that holds for the network's schedule, or only the shared ones.

    Without positions each row has the warm-up depth that makes it smallest, and there are no pair rows.
    """
    arcs, micro_batches = network.arcs, network.variant.num_microbatches
    first_tail_s = np.where(arcs.start == 0, arcs.tail_s, 0.0)
    work_s = arcs.forward_s + arcs.backward_s
    all_work_s = micro_batches * work_s + arcs.halving_s
    later_s = np.where(arcs.is_stage, (micro_batches - 1) * work_s - (network.largest_depth - 1) * arcs.forward_s, 0.0)
    families = [
        Family(name="busy", round_trip_before=1, cost_s=all_work_s + first_tail_s),
        Family(name="fill", round_trip_total=1, cost_s=later_s),
        Family(name="sync", forward_before=1, cost_s=all_work_s + arcs.tail_s),
    ]
    loads = None
    if not shared_only:
        loads = build_loads(network)
        drain_s, link_s = arcs.tail_s - first_tail_s + later_s, (micro_batches - 1) * arcs.transfer_s
        families += [
            Family(name="drain", forward_before=1, round_trip_before=-1, round_trip_total=1, cost_s=drain_s),
            Family(name="link", round_trip_total=1, cost_s=link_s, ending_s=np.zeros_like(link_s)),
        ]
        if (both_ways := _both_ways(network, loads)).cost_s.any():
            families.append(both_ways)
        if network.variant.schedule is Schedule.GPIPE:
            families.extend(_flush(network))
        elif network.has_positions:
            families.append(_pair(network))
    return Rows(
        network=network,
        round_trip=arcs.first_s + arcs.backward_s + first_tail_s + arcs.transfer_s,
        forward=arcs.first_s,
        families=tuple(families),
        fill=later_s,
        queues=None if shared_only else build_queues(network),
        loads=loads,
    )


def _both_ways(network: StageNetwork, loads: LinkLoads) -> Family:
    """T >= E_j + 2 M c, less the c and the first part of a c in E_j, where both directions take the same link."""
    both_s = np.maximum(loads.after_fabric, loads.after_home) - network.arcs.transfer_s - network.arcs.first_s
    return Family(name="both ways", round_trip_before=1, cost_s=np.maximum(0.0, both_s), ending_s=np.zeros_like(both_s))


def _pair(network: StageNetwork) -> Family:
    """A stage arc is the earlier stage at its stop and the later one at its start."""
    arcs, micro_batches = network.arcs, network.variant.num_microbatches
    position = arcs.least_position
    depth = network.depths[position]
    work_s = arcs.forward_s + arcs.backward_s
    per_loop, loops = pair_loops(depth, network.depths[np.maximum(position - 1, 0)], micro_batches)
    # n loops carry a n micro-batches; of those left, one backward is part of the total.
    left = micro_batches - per_loop * loops
    as_earlier_s = loops * work_s + (left - 1) * arcs.backward_s + np.maximum(0, left - depth) * arcs.forward_s
    _, loops_before = pair_loops(network.depths[position + 1], depth, micro_batches)
    as_later_s = loops_before * (work_s + 2 * arcs.transfer_s)
    return Family(
        name="pair",
        round_trip_total=1,
        cost_s=np.where(arcs.start > 0, as_later_s, 0.0),
        ending_s=np.where(arcs.is_stage & (position > 1), as_earlier_s, 0.0),
    )


def _flush(network: StageNetwork) -> list[Family]:
    """T >= forward half + backward half, each its own total + (M - 1) x its slowest stage or link."""
    arcs, more = network.arcs, network.variant.num_microbatches - 1
    link_s, none = more * arcs.transfer_s, np.zeros(len(arcs))
    # Of the last micro-batch only the first half counts, which the total holds.
    forward_s = more * arcs.forward_s + min(1.0, more / max(1, network.num_sliced)) * arcs.halving_s
    forward = Family(name="flush forward", target=1, forward_total=1, cost_s=forward_s)
    backward = Family(
        name="flush backward", target=2, round_trip_total=1, forward_total=-1, cost_s=more * arcs.backward_s
    )
    return [
        forward,
        replace(forward, name="flush forward link", cost_s=link_s, ending_s=none),
        backward,
        replace(backward, name="flush backward link", cost_s=link_s, ending_s=none),
    ]
