"""The bound rows of :mod:`planner.simulator.bounds`, linear in the arcs of a stage network.

A path x (0/1 per arc) is a plan. Two prefixes over its arcs,

    E_l = sum of F + B + 2 c + g_0 over stages that end, and transfers that happen, at or before l,
    D_l = the same sum of F + c,

the F of stages before the last and the c of activations being what their first half takes where the job may
slice it (`Arcs.first_s`),

make every family one pattern. For a layer l, covered by exactly one stage, and for a boundary j,

    row_l = e E_l + e' E_L + d D_l + d' D_L + sum of cover over the arcs that cover l,
    row_j = e' E_L + d' D_L + sum of ending over arcs that stop at j + sum of starting over arcs that start at j.

No big-M is needed: exactly one stage covers a layer. A row of a boundary that is not cut reduces
to the end of its first micro-batch's round trip, which no plan beats either.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.core.schedule import Schedule, pair_loops
from stagecut.planner.network.queues import Queues, build_queues
from stagecut.planner.network.stage_network import StageNetwork

SHARED_FAMILIES = ("busy", "fill", "sync")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family of rows: coefficients of the prefixes, and extra cost per arc."""

    name: str
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
    cover: Floats | None = None
    """Per arc, in the rows of the layers it covers; None in a family of boundaries."""
    ending: Floats | None = None
    """Per arc, in the row of the boundary where it stops."""
    starting: Floats | None = None
    """Per arc, in the row of the boundary where it starts."""

    @property
    def of_layers(self) -> bool:
        """Whether the rows belong to layers (else to inner boundaries)."""
        return self.cover is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """All families over one network.

    Rows of a family are indexed 0 .. L; a layer family uses 0 .. L - 1, a boundary family 1 .. L - 1.
    """

    network: StageNetwork
    round_trip: Floats
    """Share of each arc in E, shape (A,)."""
    forward: Floats
    """Share of each arc in D, shape (A,)."""
    families: tuple[Family, ...]
    queues: Queues | None = None
    """All-reduces in line; known to labels only."""

    @property
    def num_targets(self) -> int:
        """1, or 3 where forward and backward are bounded apart."""
        return 1 + max((family.target for family in self.families), default=0)

    def arc_costs(self, multipliers: Floats) -> Floats:
        """Cost of every arc when each row is charged with its multiplier, shape (A,).

        Parameters
        ----------
        multipliers
            Non-negative, shape (families, L + 1), zero for rows that do not exist.
        """
        arcs = self.network.arcs
        cost = np.zeros(len(arcs))
        for family, weights in zip(self.families, multipliers, strict=True):
            if not weights.any():
                continue
            before_index = np.concatenate(([0.0], np.cumsum(weights)))
            total = before_index[-1]
            at_or_after = total - before_index
            reach = at_or_after[arcs.stop]
            cost += self.round_trip * (family.round_trip_before * reach + family.round_trip_total * total)
            cost += self.forward * (family.forward_before * reach + family.forward_total * total)
            if family.cover is not None:
                cost += family.cover * (before_index[arcs.stop] - before_index[arcs.start])
            if family.ending is not None:
                cost += family.ending * weights[arcs.stop]
            if family.starting is not None:
                cost += family.starting * weights[arcs.start]
        return cost

    def value(self, path: Ints) -> float:
        """Largest row of a path: the lower bound on that plan's iteration time; infinite for no path."""
        arcs = self.network.arcs
        halves = np.full(self.num_targets, -np.inf)
        size = self.network.num_layers + 1
        if len(path) == 0:
            return math.inf
        for family in self.families:
            rows = np.zeros(size)
            for arc in path:
                start, stop = arcs.start[arc], arcs.stop[arc]
                round_trip, forward = self.round_trip[arc], self.forward[arc]
                rows += family.round_trip_total * round_trip + family.forward_total * forward
                rows[stop:] += family.round_trip_before * round_trip + family.forward_before * forward
                if family.cover is not None:
                    rows[start:stop] += family.cover[arc]
                if family.ending is not None:
                    rows[stop] += family.ending[arc]
                if family.starting is not None:
                    rows[start] += family.starting[arc]
            used = slice(0, size - 1) if family.of_layers else slice(1, size - 1)
            halves[family.target] = max(halves[family.target], rows[used].max(initial=-np.inf))
        return float(max(halves[0], halves[1:].sum() if len(halves) > 1 else -np.inf))

    def with_floor(self, bottleneck_s: float) -> "Rows":
        """The rows of plans whose slowest stage adds at least that much to the total: all their fill rows do."""
        stages = self.network.arcs.is_stage
        families = tuple(
            replace(family, cover=np.where(stages, np.maximum(family.cover, bottleneck_s), 0.0))
            if family.name == "fill" and family.cover is not None
            else family
            for family in self.families
        )
        return replace(self, families=families)

    def restricted(self, network: StageNetwork, kept: Ints) -> "Rows":
        """The rows over a network that holds the `kept` arcs of this one."""
        queues = None if self.queues is None else self.queues.take(kept)
        return replace(self._mapped(network, lambda values: values[kept]), queues=queues)

    def scaled(self, factor: float) -> "Rows":
        """All times multiplied by `factor`."""
        return self._mapped(self.network, lambda values: values * factor)

    def _mapped(self, network: StageNetwork, change: Callable[[Floats], Floats]) -> "Rows":
        def of(values: Floats | None) -> Floats | None:
            return None if values is None else change(values)

        families = tuple(
            replace(family, cover=of(family.cover), ending=of(family.ending), starting=of(family.starting))
            for family in self.families
        )
        return Rows(
            network=network, round_trip=change(self.round_trip), forward=change(self.forward), families=families
        )


def build_rows(network: StageNetwork, *, shared_only: bool = False) -> Rows:
    """Every family that holds for the network's schedule, or only the shared ones.

    Without positions each row has the warm-up depth that makes it smallest, and there are no pair rows.
    """
    arcs, micro_batches = network.arcs, network.variant.num_microbatches
    first_tail_s = np.where(arcs.start == 0, arcs.tail_s, 0.0)
    work_s = arcs.forward_s + arcs.backward_s
    later_s = np.where(arcs.is_stage, (micro_batches - 1) * work_s - (arcs.largest_depth - 1) * arcs.forward_s, 0.0)
    families = [
        Family(name="busy", round_trip_before=1, cover=micro_batches * work_s + first_tail_s),
        Family(name="fill", round_trip_total=1, cover=later_s),
        Family(name="sync", forward_before=1, cover=micro_batches * work_s + arcs.tail_s),
    ]
    if not shared_only:
        families.append(_drain(arcs.tail_s - first_tail_s + later_s))
        families.append(_link(network))
        if network.variant.schedule is Schedule.GPIPE:
            families.extend(_flush(network))
        elif network.has_positions:
            families.append(_pair(network))
    return Rows(
        network=network,
        round_trip=arcs.first_s + arcs.backward_s + first_tail_s + arcs.transfer_s,
        forward=arcs.first_s,
        families=tuple(families),
        queues=None if shared_only else build_queues(network),
    )


def _drain(cover: Floats) -> Family:
    """Total - PB_s = D_l + (E_L - E_l) - (F + B of the stage itself is counted by neither prefix)."""
    return Family(name="drain", forward_before=1, round_trip_before=-1, round_trip_total=1, cover=cover)


def _link(network: StageNetwork) -> Family:
    extra = (network.variant.num_microbatches - 1) * network.arcs.transfer_s
    return Family(name="link", round_trip_total=1, starting=extra, ending=np.zeros_like(extra))


def _pair(network: StageNetwork) -> Family:
    """A stage arc is the earlier stage at its stop and the later one at its start."""
    arcs, micro_batches = network.arcs, network.variant.num_microbatches
    depth = network.depths[arcs.position]
    work_s = arcs.forward_s + arcs.backward_s
    per_loop, loops = pair_loops(depth, network.depths[np.maximum(arcs.position - 1, 0)], micro_batches)
    left = micro_batches - per_loop * loops
    as_earlier = loops * work_s + (left - 1) * arcs.backward_s + np.maximum(0, left - depth) * arcs.forward_s
    _, loops_before = pair_loops(network.depths[arcs.position + 1], depth, micro_batches)
    as_later = loops_before * (work_s + 2 * arcs.transfer_s)
    return Family(
        name="pair",
        round_trip_total=1,
        ending=np.where(arcs.is_stage & (arcs.position > 1), as_earlier, 0.0),
        starting=np.where(arcs.start > 0, as_later, 0.0),
    )


def _flush(network: StageNetwork) -> list[Family]:
    """T >= forward half + backward half, each its own total + (M - 1) x its slowest stage or link."""
    arcs, more = network.arcs, network.variant.num_microbatches - 1
    crossing = more * arcs.transfer_s
    none = np.zeros_like(crossing)
    return [
        Family(name="flush forward", target=1, forward_total=1, cover=more * arcs.forward_s),
        Family(name="flush forward link", target=1, forward_total=1, starting=crossing, ending=none),
        Family(name="flush backward", target=2, round_trip_total=1, forward_total=-1, cover=more * arcs.backward_s),
        Family(
            name="flush backward link", target=2, round_trip_total=1, forward_total=-1, starting=crossing, ending=none
        ),
    ]
