"""The stage network of one variant: nodes, stage arcs and transfer arcs.

Nodes are (boundary j, stages still to come q, exit) after a stage and (j, q, entry) before one.
Stage arcs lead from an entry at j to an exit at j' > j and lower q by one; transfer arcs lead
from an exit to an entry at the same j and may open hosts. A path from source to sink that opens
no more hosts of a class than there are is a plan, and every plan of the search space is one.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from planner.core.cluster import Cluster
from planner.core.placement import Placement
from planner.core.problem import Variant
from planner.core.schedule import warmup_depth
from planner.cost.cost_model import CostModel
from planner.cost.plan_costs import Floats, Ints
from planner.cost.stage_costs import StageCosts
from planner.network.graph import LayeredGraph
from planner.network.layout import RECOMPUTE_MODES
from planner.network.places import Places, build_places

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arcs:
    """Columns over A arcs, each of shape (A,). Of a transfer arc start = stop = its boundary."""

    tail: Ints
    head: Ints
    start: Ints
    stop: Ints
    position: Ints
    """Stages to come at the tail: of a stage arc its own position, of a transfer the receiver's."""
    option: Ints
    """Index into `Places.options`; -1 for a transfer."""
    recompute: Bools
    forward_s: Floats
    backward_s: Floats
    transfer_s: Floats
    """One way; 0 for a stage arc."""
    tail_s: Floats
    """Gradient all-reduce and optimizer step."""
    opened_class: Ints
    """Server class of which a transfer opens hosts; -1 for none."""
    opened_hosts: Ints

    def take(self, chosen: Bools | Ints) -> "Arcs":
        """The chosen arcs only."""
        return replace(self, **{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    @property
    def is_stage(self) -> Bools:
        """Which arcs are stages."""
        return self.option >= 0

    def __len__(self) -> int:
        return len(self.tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNetwork:
    """The network of one variant of a problem."""

    variant: Variant
    cluster: Cluster
    num_layers: int
    depths: Ints
    """Warm-up depth by position, shape (max_stages + 2,); entry 0 is unused."""
    places: Places
    arcs: Arcs
    graph: LayeredGraph

    def restricted(self, chosen: Bools) -> "StageNetwork":
        """The same network with the chosen arcs only, less the arcs on no path any more."""
        arcs = self.arcs.take(chosen)
        graph = LayeredGraph(tail=arcs.tail, head=arcs.head, level=self.graph.level)
        alive = np.isfinite(graph.through(np.zeros(len(arcs))))
        if not alive.all():
            arcs = arcs.take(alive)
            graph = LayeredGraph(tail=arcs.tail, head=arcs.head, level=self.graph.level)
        return replace(self, arcs=arcs, graph=graph)

    def placement(self, arc: int) -> Placement:
        """Where the stage of a stage arc runs."""
        return self.places.options[int(self.arcs.option[arc])].placement


def build_network(costs: CostModel, variant: Variant, *, longest_s: float = np.inf) -> StageNetwork:
    """All arcs whose stage fits in memory and whose M (F + B) does not exceed `longest_s`."""
    problem = costs.problem
    places = build_places(problem.cluster, problem.job, micro_batch=variant.micro_batch)
    numbering = _Numbering(
        num_layers=problem.model.num_layers,
        max_stages=problem.max_stages,
        num_exits=len(places.exits),
        num_entries=len(places.entries),
    )
    depths = depths_by_position(variant, problem.max_stages)
    parts = [*_stage_arcs(costs, variant, places, numbering, depths, longest_s), _transfer_arcs(costs, variant, places, numbering)]
    arcs = Arcs(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Arcs)})
    level = numbering.levels()
    network = StageNetwork(
        variant=variant,
        cluster=problem.cluster,
        num_layers=problem.model.num_layers,
        depths=depths,
        places=places,
        arcs=arcs,
        graph=LayeredGraph(tail=arcs.tail, head=arcs.head, level=level),
    )
    return network.restricted(np.ones(len(arcs), dtype=bool))


def depths_by_position(variant: Variant, max_stages: int) -> Ints:
    """Warm-up depth k of every position q, shape (max_stages + 2,); entry 0 is unused."""
    depths = [warmup_depth(variant.schedule, max(1, q), variant.num_microbatches) for q in range(max_stages + 2)]
    return np.array(depths)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbering:
    """Node numbers: source, then per boundary its exits and its entries, then the sink."""

    num_layers: int
    max_stages: int
    num_exits: int
    num_entries: int

    @property
    def width(self) -> int:
        return (self.max_stages + 1) * (self.num_exits + self.num_entries)

    @property
    def sink(self) -> int:
        return 1 + self.num_layers * self.width

    def exits(self, boundary: Ints, to_come: Ints, index: int) -> Ints:
        numbers = 1 + boundary * self.width + to_come * self.num_exits + index
        return np.where((boundary == self.num_layers) & (to_come == 0), self.sink, numbers)

    def entries(self, boundary: Ints, to_come: Ints, index: int) -> Ints:
        first = 1 + (self.max_stages + 1) * self.num_exits
        return first + boundary * self.width + to_come * self.num_entries + index

    def levels(self) -> Ints:
        exits, entries = (self.max_stages + 1) * self.num_exits, (self.max_stages + 1) * self.num_entries
        inner = np.repeat(np.arange(1, 2 * self.num_layers + 1), np.tile([exits, entries], self.num_layers))
        return np.concatenate(([0], inner, [2 * self.num_layers + 1]))


def _stage_arcs(
    costs: CostModel, variant: Variant, places: Places, numbering: _Numbering, depths: Ints, longest_s: float
) -> list[Arcs]:
    start, stop, position = _intervals(numbering)
    by_placement: dict[Placement, list[int]] = {}
    for index, option in enumerate(places.options):
        by_placement.setdefault(option.placement, []).append(index)
    parts = []
    for placement, indices in by_placement.items():
        for recompute, fits, stage in _memory_modes(costs, variant, placement, start, stop, depths[position]):
            short = variant.num_microbatches * (stage.forward_s + stage.backward_s) <= longest_s
            kept = fits & short
            for index in indices:
                option = places.options[index]
                i, j, q = start[kept], stop[kept], position[kept]
                parts.append(
                    Arcs(
                        tail=numbering.entries(i, q, option.entry),
                        head=numbering.exits(j, q - 1, option.exit),
                        start=i,
                        stop=j,
                        position=q,
                        option=np.full(len(i), index),
                        recompute=np.full(len(i), recompute),
                        forward_s=stage.forward_s[kept],
                        backward_s=stage.backward_s[kept],
                        transfer_s=np.zeros(len(i)),
                        tail_s=(stage.sync_s + stage.update_s)[kept],
                        opened_class=np.full(len(i), -1),
                        opened_hosts=np.zeros(len(i), dtype=np.int64),
                    )
                )
    return parts


def _intervals(numbering: _Numbering) -> tuple[Ints, Ints, Ints]:
    """Every (start, stop, position) that leaves a layer for each stage to come, and only the last ends the chain."""
    layers, stages = numbering.num_layers, numbering.max_stages
    start, stop, position = np.meshgrid(
        np.arange(layers), np.arange(1, layers + 1), np.arange(1, stages + 1), indexing="ij"
    )
    last = position == 1
    valid = (start < stop) & np.where(last, stop == layers, stop + position - 1 <= layers)
    valid &= np.where(start == 0, True, start + position <= layers)
    return start[valid], stop[valid], position[valid]


def _memory_modes(
    costs: CostModel, variant: Variant, placement: Placement, start: Ints, stop: Ints, depth: Ints
) -> list[tuple[bool, Bools, StageCosts]]:
    """For each recompute mode of the job, which stages may use it and what they cost then."""
    limit_bytes = costs.stages.device_type(placement).memory_bytes
    found: list[tuple[bool, Bools, StageCosts]] = []
    taken = np.zeros(len(start), dtype=bool)
    for recompute in RECOMPUTE_MODES[costs.problem.job.recompute]:
        stage = costs.stages.stages(
            placement, micro_batch=variant.micro_batch, recompute=recompute, start=start, stop=stop
        )
        fits = stage.memory_bytes(depth) <= limit_bytes
        found.append((recompute, fits & ~taken, stage))
        taken |= fits
    return found


def _transfer_arcs(costs: CostModel, variant: Variant, places: Places, numbering: _Numbering) -> Arcs:
    boundary_bytes = costs.problem.model.boundary_bytes()
    grid = np.meshgrid(np.arange(1, numbering.num_layers), np.arange(1, numbering.max_stages), indexing="ij")
    inner = grid[0] + grid[1] <= numbering.num_layers
    boundary, to_come = grid[0][inner], grid[1][inner]
    first_positions = np.arange(1, numbering.max_stages + 1)
    columns: dict[str, list[NDArray[np.generic]]] = {name: [] for name in ("tail", "head", "at", "position", "s", "class", "hosts")}
    for crossing in places.crossings:
        entry = places.entries[crossing.entry]
        if crossing.exit is None or crossing.link is None:
            at, position = np.zeros_like(first_positions), first_positions
            tail, seconds = np.zeros_like(at), np.zeros(len(at))
        else:
            at, position = boundary, to_come
            tail = numbering.exits(at, position, crossing.exit)
            link = crossing.link
            seconds = link.latency_s + variant.micro_batch * boundary_bytes[at] / link.bandwidth_bytes_per_s
        columns["tail"].append(tail)
        columns["head"].append(numbering.entries(at, position, crossing.entry))
        columns["at"].append(at)
        columns["position"].append(position)
        columns["s"].append(seconds)
        columns["class"].append(np.full(len(at), entry.server_class if entry.opened_hosts else -1))
        columns["hosts"].append(np.full(len(at), entry.opened_hosts))
    merged = {name: np.concatenate(parts) for name, parts in columns.items()}
    size = len(merged["tail"])
    return Arcs(
        tail=merged["tail"],
        head=merged["head"],
        start=merged["at"],
        stop=merged["at"],
        position=merged["position"],
        option=np.full(size, -1),
        recompute=np.zeros(size, dtype=bool),
        forward_s=np.zeros(size),
        backward_s=np.zeros(size),
        transfer_s=merged["s"],
        tail_s=np.zeros(size),
        opened_class=merged["class"],
        opened_hosts=merged["hosts"],
    )
