"""Arcs of a stage network as columns, and how they are made from places and stage costs."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from planner.core.placement import Placement
from planner.core.problem import Variant
from planner.cost.cost_model import CostModel
from planner.cost.plan_costs import Floats, Ints
from planner.cost.stage_costs import StageCosts
from planner.network.layout import RECOMPUTE_MODES
from planner.network.places import Crossing, Places

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


def join_arcs(parts: list[Arcs]) -> Arcs:
    """All arcs of the parts, in order."""
    joined = [_NO_ARCS, *parts]
    return Arcs(
        **{field.name: np.concatenate([getattr(part, field.name) for part in joined]) for field in fields(Arcs)}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """Node numbers: source, then per boundary its exits and its entries, then the sink."""

    num_layers: int
    max_stages: int
    num_exits: int
    num_entries: int

    def exits(self, boundary: Ints, to_come: Ints, index: int) -> Ints:
        """Nodes of an exit at a boundary; the sink once no stage is to come."""
        numbers = 1 + boundary * self._width + to_come * self.num_exits + index
        sink = 1 + self.num_layers * self._width
        return np.where((boundary == self.num_layers) & (to_come == 0), sink, numbers)

    def entries(self, boundary: Ints, to_come: Ints, index: int) -> Ints:
        """Nodes of an entry at a boundary."""
        first = 1 + (self.max_stages + 1) * self.num_exits
        return first + boundary * self._width + to_come * self.num_entries + index

    def levels(self) -> Ints:
        """Level of every node, source and sink included."""
        block = [(self.max_stages + 1) * self.num_exits, (self.max_stages + 1) * self.num_entries]
        inner = np.repeat(np.arange(1, 2 * self.num_layers + 1), np.tile(block, self.num_layers))
        return np.concatenate(([0], inner, [2 * self.num_layers + 1]))

    @property
    def _width(self) -> int:
        return (self.max_stages + 1) * (self.num_exits + self.num_entries)


def stage_arcs(
    costs: CostModel, variant: Variant, places: Places, numbering: Numbering, depths: Ints, longest_s: float
) -> Iterator[Arcs]:
    """Per option and recompute mode, every stage that fits in memory and has M (F + B) <= `longest_s`."""
    start, stop, position = _intervals(numbering)
    by_placement: dict[Placement, list[int]] = {}
    for index, option in enumerate(places.options):
        by_placement.setdefault(option.placement, []).append(index)
    for placement, options in by_placement.items():
        for recompute, fits, stage in _memory_modes(costs, variant, placement, start, stop, depths[position]):
            kept = fits & (variant.num_microbatches * (stage.forward_s + stage.backward_s) <= longest_s)
            i, j, q = start[kept], stop[kept], position[kept]
            for index in options:
                option = places.options[index]
                yield Arcs(
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


def transfer_arcs(costs: CostModel, variant: Variant, places: Places, numbering: Numbering) -> Iterator[Arcs]:
    """Per crossing, a transfer at every inner boundary; from the source, the opening of the first hosts."""
    boundary_bytes = costs.problem.model.boundary_bytes()
    grid = np.meshgrid(np.arange(1, numbering.num_layers), np.arange(1, numbering.max_stages), indexing="ij")
    inner = grid[0] + grid[1] <= numbering.num_layers
    any_position = np.arange(1, numbering.max_stages + 1)
    for crossing in places.crossings:
        if crossing.exit is None or crossing.link is None:
            at, position = np.zeros_like(any_position), any_position
            tail, seconds = np.zeros_like(at), np.zeros(len(at))
        else:
            at, position = grid[0][inner], grid[1][inner]
            tail = numbering.exits(at, position, crossing.exit)
            volume_bytes = variant.micro_batch * boundary_bytes[at]
            seconds = crossing.link.latency_s + volume_bytes / crossing.link.bandwidth_bytes_per_s
        yield _crossing_arcs(places, numbering, crossing, at, position, tail, seconds)


def _crossing_arcs(
    places: Places, numbering: Numbering, crossing: Crossing, at: Ints, position: Ints, tail: Ints, seconds: Floats
) -> Arcs:
    entry, size = places.entries[crossing.entry], len(at)
    return Arcs(
        tail=tail,
        head=numbering.entries(at, position, crossing.entry),
        start=at,
        stop=at,
        position=position,
        option=np.full(size, -1),
        recompute=np.zeros(size, dtype=bool),
        forward_s=np.zeros(size),
        backward_s=np.zeros(size),
        transfer_s=seconds,
        tail_s=np.zeros(size),
        opened_class=np.full(size, entry.server_class if entry.opened_hosts else -1),
        opened_hosts=np.full(size, entry.opened_hosts),
    )


def _intervals(numbering: Numbering) -> tuple[Ints, Ints, Ints]:
    """Every (start, stop, position) that leaves a layer for each stage to come and ends the chain with the last."""
    layers, stages = numbering.num_layers, numbering.max_stages
    start, stop, position = np.meshgrid(
        np.arange(layers), np.arange(1, layers + 1), np.arange(1, stages + 1), indexing="ij"
    )
    valid = (start < stop) & np.where(position == 1, stop == layers, stop + position - 1 <= layers)
    return start[valid], stop[valid], position[valid]


def _memory_modes(
    costs: CostModel, variant: Variant, placement: Placement, start: Ints, stop: Ints, depth: Ints
) -> Iterator[tuple[bool, Bools, StageCosts]]:
    """For each recompute mode of the job, which stages are to use it and what they cost then."""
    limit_bytes = costs.stages.device_type(placement).memory_bytes
    taken = np.zeros(len(start), dtype=bool)
    for recompute in RECOMPUTE_MODES[costs.problem.job.recompute]:
        stage = costs.stages.stages(
            placement, micro_batch=variant.micro_batch, recompute=recompute, start=start, stop=stop
        )
        fits = stage.memory_bytes(depth) <= limit_bytes
        yield recompute, fits & ~taken, stage
        taken |= fits


_NO_INTS, _NO_FLOATS = np.empty(0, dtype=np.int64), np.empty(0)
_NO_ARCS = Arcs(
    tail=_NO_INTS,
    head=_NO_INTS,
    start=_NO_INTS,
    stop=_NO_INTS,
    position=_NO_INTS,
    option=_NO_INTS,
    recompute=np.empty(0, dtype=bool),
    forward_s=_NO_FLOATS,
    backward_s=_NO_FLOATS,
    transfer_s=_NO_FLOATS,
    tail_s=_NO_FLOATS,
    opened_class=_NO_INTS,
    opened_hosts=_NO_INTS,
)
