"""The stage network of one variant: nodes, stage arcs and transfer arcs.

Nodes are (boundary j, exit) after a stage and (j, entry) before one; with positions, also the
number of stages still to come. Stage arcs lead from an entry at j to an exit at j' > j, transfer
arcs from an exit to an entry at the same j, and may open hosts. A path from source to sink that
opens no more hosts of a class than there are is a plan, and every plan of the search space is one.

Without positions the network is many times smaller. An arc then has a range of positions, and so of
warm-up depths, and the costs of the smallest depth: paths cost no more than their plans. What is
ruled out there need not be built with positions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.messages.errors import StoppedError
from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Variant
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.arcs import Arcs, arcs_over, join_arcs
from stagecut.planner.network.copies import Copies, copies_of, nodes_of
from stagecut.planner.network.fitted_stages import fit_arcs, quick_intervals
from stagecut.planner.network.graph import LayeredGraph
from stagecut.planner.network.host_states import HostStates, build_host_states
from stagecut.planner.network.interval_costs import depths_by_position
from stagecut.planner.network.interval_network import IntervalNetwork, transfer_times


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNetwork:
    """The network of one variant of a problem."""

    variant: Variant
    costs: CostModel
    """Cost model of the variant's share."""
    num_layers: int
    depths: Ints
    """Warm-up depth by position, shape (max_stages + 2,); entry 0 is unused."""
    host_states: HostStates
    arcs: Arcs
    graph: LayeredGraph
    has_positions: bool
    lengths: tuple[int, int]
    """Fewest and most stages of the plans considered."""

    @property
    def cluster(self) -> Cluster:
        """The part of the cluster that one pipeline has."""
        return self.costs.cluster

    @property
    def num_sliced(self) -> int:
        """How many halved micro-batches the job states; 0 if none, or as many as pay off."""
        job, variant = self.costs.problem.job, self.variant
        return job.first_num_sliced(variant.schedule, variant.micro_batch, variant.num_microbatches)

    @property
    def placements(self) -> list[Placement]:
        """Placement of every option of the host states."""
        return [option.placement for option in self.host_states.options]

    def restricted(self, chosen: Bools) -> tuple["StageNetwork", Ints]:
        """The network of the chosen arcs, less those then on no path, and which arcs are kept."""
        chosen = self.graph.on_paths(chosen)
        kept, graph = np.flatnonzero(chosen), self.graph.restricted(chosen)
        arcs = replace(self.arcs.take(kept), tail=graph.tail, head=graph.head)
        return replace(self, arcs=arcs, graph=graph), kept

    def stages_to_come(self) -> tuple[Ints, Ints]:
        """Fewest and most stages on the way from each node to the sink, shape (nodes,)."""
        if len(self.arcs) == 0:
            return (none := np.zeros(self.graph.num_nodes, dtype=np.int64)), none
        stages, (shortest, longest) = self.arcs.is_stage.astype(float), self.lengths
        fewest, most = self.graph.to_sink(stages), -self.graph.to_sink(-stages)
        fewest = np.maximum(fewest, shortest + self.graph.from_source(-stages))
        most = np.minimum(most, longest - self.graph.from_source(stages))
        return fewest.astype(np.int64), most.astype(np.int64)

    @property
    def least_depth(self) -> Ints:
        """The smallest warm-up depth that each stage may have, shape (A,)."""
        return self.depths[self.arcs.least_position]

    @property
    def largest_depth(self) -> Ints:
        """The largest one, shape (A,)."""
        return self.depths[self.arcs.largest_position]

    @property
    def num_positions(self) -> int:
        """Of all arcs that count: with positions, no more arcs than this would be built."""
        arcs, order = self.arcs, self.graph.by_tail
        return int((arcs.largest_position[order] - arcs.least_position[order] + 1).sum())

    def narrowed(self, least: Ints, largest: Ints) -> "StageNetwork":
        """The same network, whose arcs have these positions; where `least` is more, they do not count."""
        order = self.graph.by_tail
        return replace(
            self,
            arcs=replace(self.arcs, least_position=least, largest_position=largest),
            graph=self.graph.counting(order[least[order] <= largest[order]]),
        )

    @property
    def copies(self) -> Copies:
        """Copies of the nodes for each number of stages to come; with positions the nodes themselves."""
        return (nodes_of if self.has_positions else copies_of)(self.graph, self.arcs)

    def fitted(self, arcs: Arcs, *, longest_s: float) -> tuple[Arcs, Bools, Ints]:
        """The arcs with their costs at their least positions; see :func:`fit_arcs`."""
        depth = self.depths[arcs.least_position]
        return fit_arcs(self.costs, self.variant, self.placements, arcs, depth, longest_s=longest_s)

    @property
    def limits(self) -> Floats:
        """Number of hosts of each class, and minus the fewest stages: what a path may use at most."""
        counts = [server.count for server in self.cluster.servers]
        return np.array([*counts, -self.lengths[0]], dtype=float)

    def of_lengths(self, shortest: int, longest: int) -> "StageNetwork":
        """The same network, for plans of that many stages only."""
        return replace(self, lengths=(shortest, longest))


ARC_BYTES = 1_800
"""Upper limit of the memory per arc while arcs are left out, whose parts by mode are there too: measured as 1,740 on
llama3-70b on 320 devices. Building a network takes up to 570."""


def build_network(
    costs: CostModel,
    variant: Variant,
    *,
    longest_s: float = np.inf,
    room_bytes: float = np.inf,
    intervals: IntervalNetwork | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> StageNetwork:
    """The network without positions of all stages that may fit in memory and have M (F + B) <= `longest_s`.

    If `intervals` of the variant are given, of the stages left there.

    Raises
    ------
    MemoryError
        If building it would take more than `room_bytes`; raised before any of that is allocated.
    StoppedError
        If `stop` says so before the end; asked before every step over all arcs.
    """
    costs = costs.of(variant.share)
    if intervals is not None:
        states, of_options = intervals.host_states, intervals.intervals()
    else:
        states = build_host_states(costs.problem, costs.cluster, micro_batch=variant.micro_batch)
        placements = [option.placement for option in states.options]
        quick = {
            placement: quick_intervals(costs, variant, placement, longest_s=longest_s) for placement in set(placements)
        }
        of_options = [quick[placement] for placement in placements]
    numbering = NodeNumbering(costs.problem.model.num_layers, len(states.exits), len(states.entries))
    if ARC_BYTES * sum(len(start) for start, _ in of_options) > room_bytes:
        raise MemoryError
    _unless(stop)
    arcs, _ = join_arcs(
        [*_stages(states, numbering, of_options), *_transfers(costs, variant, states, numbering)]
    ).by_tail()
    arcs = replace(arcs, largest_position=np.full(len(arcs), costs.max_stages))
    _unless(stop)
    network = StageNetwork(
        variant=variant,
        costs=costs,
        num_layers=numbering.num_layers,
        depths=depths_by_position(variant, costs.max_stages),
        host_states=states,
        arcs=arcs,
        graph=LayeredGraph(tail=arcs.tail, head=arcs.head, level=numbering.levels()),
        has_positions=False,
        lengths=(1, costs.max_stages),
    )
    network, _ = network.restricted(np.ones(len(arcs), dtype=bool))
    # The depths of the first round leave out stages, which narrows the depths of the second.
    for _ in range(2):
        _unless(stop)
        network, _ = with_depths(network, longest_s=longest_s)
    return network


def _unless(stop: Callable[[], bool]) -> None:
    if stop():
        raise StoppedError


def with_depths(network: StageNetwork, *, longest_s: float = np.inf) -> tuple[StageNetwork, Ints]:
    """The network without positions, less the arcs that no path of a length meant leads through; which are kept.

    Stages that fit in memory at none of their positions, or have M (F + B) above `longest_s`, are left out.
    """
    if len(network.arcs) == 0:
        return network, np.empty(0, dtype=np.int64)
    arcs, graph, (fewest, most) = network.arcs, network.graph, network.stages_to_come()
    passing = arcs.is_stage.astype(np.int64)
    low = np.maximum(arcs.least_position, np.maximum(fewest[graph.tail], fewest[graph.head] + passing))
    high = np.minimum(arcs.largest_position, np.minimum(most[graph.tail], most[graph.head] + passing))
    # The positions of an arc that is left out are not in order.
    least = np.clip(low, 0, network.costs.max_stages)
    ranged = replace(arcs, least_position=least, largest_position=np.maximum(least, high))
    fitted, kept, _ = network.fitted(ranged, longest_s=longest_s)
    return replace(network, arcs=fitted).restricted(kept & (low <= high))


def by_mode(network: StageNetwork, *, longest_s: float = np.inf) -> tuple[StageNetwork, Ints]:
    """The network without positions with an arc for each mode in which a stage fits; the numbers that they had.

    Each has the positions at which it is the first mode that fits, and the costs of that mode.
    """
    arcs, numbers, last = network.arcs, np.arange(len(network.arcs)), len(network.depths) - 1
    parts, numbers_of_parts = [], []
    while len(arcs):
        fitted, kept, most_depth = network.fitted(arcs, longest_s=longest_s)
        fitted, numbers = fitted.take(kept), numbers[kept]
        # Depths do not fall with the position.
        furthest = np.searchsorted(network.depths[1:last], most_depth[kept], side="right")
        furthest = np.where(fitted.is_stage, furthest, last)
        parts.append(replace(fitted, largest_position=np.minimum(fitted.largest_position, furthest)))
        numbers_of_parts.append(numbers)
        more = fitted.largest_position > furthest
        arcs, numbers = replace(fitted.take(more), least_position=furthest[more] + 1), numbers[more]
    (joined, order), graph = join_arcs(parts).by_tail(), network.graph
    divided = replace(network, arcs=joined, graph=LayeredGraph(tail=joined.tail, head=joined.head, level=graph.level))
    return divided, np.concatenate([np.empty(0, dtype=np.int64), *numbers_of_parts])[order]


def with_positions(network: StageNetwork, *, longest_s: float = np.inf) -> StageNetwork:
    """The same plans, with a copy of every node for each number of stages to come."""
    if len(network.arcs) == 0:
        return replace(network, has_positions=True)
    arcs, copies = network.arcs, network.copies
    widths = np.maximum(0, copies.largest - copies.least + 1)
    chosen = np.repeat(np.arange(len(arcs)), widths)
    position = copies.least[chosen] + np.arange(len(chosen)) - np.repeat(np.cumsum(widths) - widths, widths)
    # The source is one node again.
    more = int(copies.of_nodes[0]) - 1
    tail = np.maximum(0, copies.tail[chosen] + position - more)
    expanded, _ = replace(
        arcs.take(chosen),
        tail=tail,
        head=copies.head[chosen] + position - more,
        least_position=position,
        largest_position=position,
    ).by_tail()
    expanded, kept, _ = network.fitted(expanded, longest_s=longest_s)
    whole = replace(
        network,
        arcs=expanded,
        graph=LayeredGraph(
            tail=expanded.tail, head=expanded.head, level=np.repeat(network.graph.level, copies.of_nodes)[more:]
        ),
        has_positions=True,
    )
    return whole.restricted(kept)[0]


@dataclass(frozen=True, slots=True)
class NodeNumbering:
    """Node numbers: source, then per boundary its exits and its entries, then the sink."""

    num_layers: int
    num_exits: int
    num_entries: int

    @property
    def _width(self) -> int:
        return self.num_exits + self.num_entries

    def exits(self, boundary: Ints, index: int) -> Ints:
        """Nodes of an exit at each boundary; after the last layer every exit is the sink."""
        sink = 1 + self.num_layers * self._width
        return np.where(boundary == self.num_layers, sink, 1 + boundary * self._width + index)

    def entries(self, boundary: Ints, index: int) -> Ints:
        """Nodes of an entry at each boundary."""
        return 1 + boundary * self._width + self.num_exits + index

    def levels(self) -> Ints:
        """Levels of all nodes: source, then exits and entries of each boundary, then the sink."""
        widths = [1, *[self.num_exits, self.num_entries] * self.num_layers, 1]
        return np.repeat(np.arange(len(widths)), widths)


def _stages(states: HostStates, numbering: NodeNumbering, intervals: list[tuple[Ints, Ints]]) -> Iterator[Arcs]:
    """Per option, every stage that is short enough, without its costs and depths."""
    for index, (option, (start, stop)) in enumerate(zip(states.options, intervals, strict=True)):
        yield replace(
            arcs_over(start, stop),
            tail=numbering.entries(start, option.entry),
            head=numbering.exits(stop, option.exit),
            option=np.full(len(start), index),
        )


def _transfers(costs: CostModel, variant: Variant, states: HostStates, numbering: NodeNumbering) -> Iterator[Arcs]:
    """Per crossing, a transfer at every inner boundary; from the source, the opening of the first hosts."""
    for crossing in states.crossings:
        entry = states.entries[crossing.entry]
        if crossing.exit is None:
            at = tail = np.zeros(1, dtype=np.int64)
        else:
            at = np.arange(1, numbering.num_layers)
            tail = numbering.exits(at, crossing.exit)
        transfer_s, first_s = transfer_times(costs, variant, crossing, at)
        yield replace(
            arcs_over(at, at),
            tail=tail,
            head=numbering.entries(at, crossing.entry),
            option=np.full(len(at), -1 - crossing.entry),
            first_s=first_s,
            transfer_s=transfer_s,
            opened_class=np.full(len(at), entry.server_class if entry.opened_hosts else -1),
            opened_hosts=np.full(len(at), entry.opened_hosts),
        )
