"""The stage network of plans whose processes have sublot sizes of their own.

Nodes and paths are those of :mod:`stagecut.planner.network.stage_network` without positions, which a flush makes
exact: every stage holds the activations of all samples, wherever it is. Each arc has its seconds for sublots of
any length that occurs, forwards and backwards, and the sizes that it may have.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.tolerances import PREFIX_SUM
from stagecut.planner.core.placement import Placement
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.arrangement import RECOMPUTE_MODES
from stagecut.planner.network.graph import LayeredGraph
from stagecut.planner.network.host_states import Crossing, HostStates, build_host_states
from stagecut.planner.network.stage_network import NodeNumbering


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The sublot sizes to choose from, and the sublots that they make of N samples."""

    num_samples: int
    """Samples N that pass through each pipeline."""
    sizes: tuple[int, ...]

    @property
    def lengths(self) -> Ints:
        """Lengths of sublots, ascending: the sizes and what they leave of the batch."""
        return np.unique([part for size in self.sizes for part in (size, self.num_samples % size or size)])

    def passes_s(self, seconds: Floats) -> Floats:
        """Seconds in which all samples pass, for each size, shape (..., sizes), from those of each length."""
        column = {int(length): index for index, length in enumerate(self.lengths)}
        passes = []
        for size in self.sizes:
            count, rest = divmod(self.num_samples, size)
            pass_s = count * seconds[..., column[size]]
            passes.append(pass_s + seconds[..., column[rest]] if rest else pass_s)
        return np.stack(passes, axis=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedArcs:
    """Columns over A arcs; a transfer has start = stop = its boundary."""

    tail: Ints
    head: Ints
    start: Ints
    stop: Ints
    option: Ints
    """Index into `HostStates.options`; -1 for a transfer."""
    opened_class: Ints
    """Server class whose hosts a transfer opens; -1 for none."""
    opened_hosts: Ints
    recompute: Bools
    allowed: Bools
    """Which sizes the process may have, shape (A, sizes)."""
    forward_s: Floats
    """Of a sublot of each length, shape (A, lengths)."""
    backward_s: Floats
    """Of a sublot of each length, shape (A, lengths)."""
    tail_s: Floats
    """Gradient all-reduce and optimizer step after the last backward."""

    def take(self, chosen: Bools | Ints) -> "SizedArcs":
        """The chosen arcs, or the numbered ones in that order, repetitions included."""
        return replace(self, **{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    def __len__(self) -> int:
        return len(self.tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedNetwork:
    """All partitions and mappings of one variant, with the seconds of every sublot."""

    costs: CostModel
    """Cost model of the variant's share."""
    sizing: Sizing
    host_states: HostStates
    arcs: SizedArcs
    graph: LayeredGraph

    def restricted(self, chosen: Bools) -> "SizedNetwork":
        """The network of the chosen arcs, less those then on no path."""
        chosen = self.graph.on_paths(chosen)
        kept, graph = np.flatnonzero(chosen), self.graph.restricted(chosen)
        return replace(self, arcs=replace(self.arcs.take(kept), tail=graph.tail, head=graph.head), graph=graph)


def build_sized_network(costs: CostModel, sizing: Sizing, *, longest_s: float) -> SizedNetwork:
    """The network of all stages that fit in memory and can pass all samples in `longest_s`.

    Parameters
    ----------
    costs
        Cost model of the variant's share.
    """
    states = build_host_states(costs.problem, costs.cluster, micro_batch=sizing.num_samples)
    num_layers = costs.problem.model.num_layers
    numbering = NodeNumbering(num_layers, len(states.exits), len(states.entries))
    transfers = (_transfers(costs, sizing, states, numbering, crossing) for crossing in states.crossings)
    none = _arcs_over(sizing, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    arcs = _joined([none, *_stages(costs, sizing, states, numbering, longest_s=longest_s), *transfers])
    graph = LayeredGraph(tail=arcs.tail, head=arcs.head, level=numbering.levels())
    network = SizedNetwork(costs=costs, sizing=sizing, host_states=states, arcs=arcs, graph=graph)
    return network.restricted(np.ones(len(arcs), dtype=bool))


def _arcs_over(sizing: Sizing, start: Ints, stop: Ints) -> SizedArcs:
    """Transfers of any size that take no time, as far as only their layers are known."""
    size, none = len(start), np.zeros(len(start), dtype=np.int64)
    nothing = np.zeros((size, len(sizing.lengths)))
    return SizedArcs(
        tail=none,
        head=none,
        start=start,
        stop=stop,
        option=none - 1,
        opened_class=none - 1,
        opened_hosts=none,
        recompute=none > 0,
        allowed=np.ones((size, len(sizing.sizes)), dtype=bool),
        forward_s=nothing,
        backward_s=nothing,
        tail_s=np.zeros(size),
    )


def _joined(parts: list[SizedArcs]) -> SizedArcs:
    return SizedArcs(
        **{field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(SizedArcs)}
    )


def _stages(
    costs: CostModel, sizing: Sizing, states: HostStates, numbering: NodeNumbering, *, longest_s: float
) -> Iterator[SizedArcs]:
    fitted: dict[Placement, SizedArcs] = {}
    for index, option in enumerate(states.options):
        if option.placement not in fitted:
            start, stop = _quick_intervals(costs, sizing, option.placement, longest_s=longest_s)
            stages = fitted_stages(costs, sizing, option.placement, start, stop)
            fitted[option.placement] = stages.take(np.flatnonzero(stages.allowed.any(axis=1)))
        arcs = fitted[option.placement]
        yield replace(
            arcs,
            tail=numbering.entries(arcs.start, option.entry),
            head=numbering.exits(arcs.stop, option.exit),
            option=np.full(len(arcs), index),
        )


def _quick_intervals(costs: CostModel, sizing: Sizing, placement: Placement, *, longest_s: float) -> tuple[Ints, Ints]:
    """Stages that can pass all samples forwards and backwards in time, memory and recomputation aside."""
    num_layers = costs.problem.model.num_layers
    zero, stops = np.zeros(num_layers + 1, dtype=np.int64), np.arange(num_layers + 1)
    prefixes = [
        costs.stages.stages(placement, micro_batch=length, recompute=False, start=zero, stop=stops)
        for length in sizing.lengths.tolist()
    ]
    work_s = np.zeros((num_layers + 1, num_layers + 1))
    for column in ("forward_s", "backward_s"):
        passes_s = sizing.passes_s(np.stack([getattr(prefix, column) for prefix in prefixes], axis=-1))
        work_s += np.min([of_size[None, :] - of_size[:, None] for of_size in passes_s.T], axis=0)
    start, stop = np.nonzero(np.triu(work_s <= longest_s * (1 + PREFIX_SUM), k=1))
    return start, stop


def fitted_stages(costs: CostModel, sizing: Sizing, placement: Placement, start: Ints, stop: Ints) -> SizedArcs:
    """Stages in the first recompute mode in which they fit with all samples in flight and some size.

    A stage that fits in no mode is allowed no size.
    """
    limit_bytes, lengths = costs.stages.device_type(placement).memory_bytes, sizing.lengths.tolist()
    forward_s, backward_s = np.zeros((2, len(start), len(lengths)))
    allowed, recompute = np.zeros((len(start), len(sizing.sizes)), dtype=bool), np.zeros(len(start), dtype=bool)
    tail_s = np.zeros(len(start))
    for mode in RECOMPUTE_MODES[costs.problem.job.recompute]:
        unfit = np.flatnonzero(~allowed.any(axis=1))
        recompute[unfit] = mode
        stages = partial(costs.stages.stages, placement, recompute=mode, start=start[unfit], stop=stop[unfit])
        saved_bytes = stages(micro_batch=sizing.num_samples).saved_bytes
        for column, length in enumerate(lengths):
            stage = stages(micro_batch=length)
            forward_s[unfit, column], backward_s[unfit, column] = stage.forward_s, stage.backward_s
            tail_s[unfit] = stage.sync_s + stage.update_s
            if length in sizing.sizes and length % placement.replicas == 0:
                needed_bytes = stage.static_bytes + saved_bytes + stage.working_bytes
                allowed[unfit, sizing.sizes.index(length)] = needed_bytes <= limit_bytes
    return replace(
        _arcs_over(sizing, start, stop),
        recompute=recompute,
        allowed=allowed,
        forward_s=forward_s,
        backward_s=backward_s,
        tail_s=tail_s,
    )


def _transfers(
    costs: CostModel, sizing: Sizing, states: HostStates, numbering: NodeNumbering, crossing: Crossing
) -> SizedArcs:
    """A crossing at every inner boundary; from the source, the opening of the first hosts."""
    entry = states.entries[crossing.entry]
    if crossing.exit is None or crossing.link is None:
        at = tail = np.zeros(1, dtype=np.int64)
        seconds = np.zeros((1, len(sizing.lengths)))
    else:
        at = np.arange(1, numbering.num_layers)
        tail = numbering.exits(at, crossing.exit)
        message_bytes: Floats = costs.problem.model.boundary_bytes()[at, None] * sizing.lengths
        seconds = np.reshape(crossing.link.transfer_s(message_bytes.ravel()), message_bytes.shape)
    return replace(
        _arcs_over(sizing, at, at),
        tail=tail,
        head=numbering.entries(at, crossing.entry),
        opened_class=np.full(len(at), entry.server_class if entry.opened_hosts else -1),
        opened_hosts=np.full(len(at), entry.opened_hosts),
        forward_s=seconds,
        backward_s=seconds,
    )


def with_host_counts(network: SizedNetwork, *, most_arcs: int) -> SizedNetwork | None:
    """The same plans, with a copy of every node for each number of hosts opened so far, class by class.

    No path then opens more hosts than there are. None if that takes more than `most_arcs` arcs.
    """
    limits = np.array([server.count for server in network.costs.cluster.servers])
    strides = np.cumprod(np.append(1, limits + 1))
    arcs, copies = network.arcs, int(strides[-1])
    if len(arcs) * copies > most_arcs:
        return None
    counts = [np.arange(copies) // stride % (limit + 1) for stride, limit in zip(strides, limits, strict=False)]
    opened = np.stack(counts)
    chosen, before = (each.ravel() for each in np.meshgrid(np.arange(len(arcs)), np.arange(copies), indexing="ij"))
    opens, adds = arcs.opened_class[chosen], arcs.opened_hosts[chosen]
    fits = (opens < 0) | (opened[opens, before] + adds <= limits[opens])
    chosen, before, opens, adds = chosen[fits], before[fits], opens[fits], adds[fits]
    after = before + np.where(opens < 0, 0, adds * strides[opens])
    sink = network.graph.num_nodes - 1
    # The source has opened nothing, and the sink takes whatever was opened.
    tail = arcs.tail[chosen] * copies + before
    head = np.minimum(arcs.head[chosen] * copies + after, sink * copies)
    graph = LayeredGraph(tail=tail, head=head, level=np.repeat(network.graph.level, copies)[: sink * copies + 1])
    expanded = replace(network, arcs=replace(arcs.take(chosen), tail=tail, head=head), graph=graph)
    return expanded.restricted(np.ones(len(chosen), dtype=bool))
