"""The network without positions before it has arcs: intervals of layers on options, and transfers.

Stages on equal placements cost the same wherever in a host they are, so costs are kept once for each placement and
interval. The labels of all nodes, and a bound on the plans through each stage, take a few passes over that, at a
fraction of the time and memory of arcs. What :mod:`stagecut.planner.network.pruning` proves of arcs holds here with the
rows `busy`, `fill`, `sync`, `drain` and `flush`; stages left out need never become arcs.
"""

from dataclasses import dataclass, replace

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.tolerances import PATH_SUM
from stagecut.planner.core.problem import Variant
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.links import half_transfer_s
from stagecut.planner.network.host_states import Crossing, HostStates, build_host_states
from stagecut.planner.network.interval_costs import IntervalCosts, interval_costs
from stagecut.planner.network.interval_sweeps import from_source, in_time, shortest_path, to_sink


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalNetwork:
    """The stages and transfers that plans of one variant may have."""

    host_states: HostStates
    limits: Floats
    """As in :class:`stagecut.planner.network.stage_network.StageNetwork`."""
    stages: IntervalCosts
    options: Ints
    """Entry, exit and placement of each option, and how far its stages are behind those of the placement in `allowed`.

    Shape (options, 4).
    """
    allowed: Bools
    """Option by option, which stages of its placement are left."""
    crossings: Ints
    """Exit, or -1 at the start of a pipeline, and entry; shape (crossings, 2)."""
    transfers: Floats
    """Round trip and forward part at each boundary, infinite where there is none; shape (2, crossings, L)."""
    opened: Floats
    """Hosts of each class that a crossing opens, and 0 for stages; shape (crossings, classes + 1)."""

    def __len__(self) -> int:
        return int(np.count_nonzero(self.allowed))

    def intervals(self) -> list[tuple[Ints, Ints]]:
        """Start and stop of the stages left, for each option."""
        found = []
        for _, _, placement, behind in self.options:
            first, last = self.stages.begins[placement, [0, -1]]
            left = first + np.flatnonzero(self.allowed[first + behind : last + behind])
            found.append((self.stages.start[left], self.stages.stop[left]))
        return found

    def shortest(self, prices: Floats) -> tuple[float, Floats] | None:
        """Round trip of a shortest priced path, and what it uses of the `limits`; None if there is no path."""
        stage_s, transfer_s = self._priced(self.stages.round_trip, self.transfers[0], prices)
        entries_on, exits_on = to_sink(*self._graph, stage_s, transfer_s, *self._nodes)
        crossed, boundaries, passed = shortest_path(*self._graph, stage_s, transfer_s, entries_on, exits_on)
        if len(passed) == 0:
            return None
        used = self.opened[crossed].sum(axis=0)
        used[-1] = -len(passed)
        return float(self.stages.round_trip[passed].sum() + self.transfers[0, crossed, boundaries].sum()), used

    def without_late(self, prices: Floats, limit_s: float) -> "IntervalNetwork":
        """Less the stages that no plan at or below the limit has, as prices of hosts and of a stage prove."""
        stages, (round_trip, forward) = self.stages, self.transfers
        free = np.zeros(len(stages.start)), np.where(np.isfinite(round_trip), 0.0, np.inf)
        length = self._priced(stages.round_trip, round_trip, prices)
        to, _ = from_source(*self._graph, *length, *self._nodes)
        forward_to, _ = from_source(*self._graph, *self._priced(stages.forward, forward, prices), *self._nodes)
        _, on = to_sink(*self._graph, *length, *self._nodes)
        _, hosts_on = to_sink(*self._graph, *self._priced(*free, prices), *self._nodes)
        # budget = mu N less the reward of the fewest stages.
        budget, rounding = float(prices @ self.limits), PATH_SUM * float(prices @ np.abs(self.limits))
        allowed = in_time(
            *self._graph[:3],
            (to, forward_to, on, hosts_on),
            (length[0], stages.busy, stages.fill, stages.sync, stages.drain),
            (float(prices[-1]), budget + rounding, PATH_SUM, limit_s),
        )
        return replace(self, allowed=allowed)

    @property
    def _graph(self) -> tuple[Ints, Ints, Bools, Ints]:
        return self.options, self.stages.begins, self.allowed, self.crossings

    @property
    def _nodes(self) -> tuple[int, int]:
        return len(self.host_states.entries), len(self.host_states.exits)

    def _priced(self, stage_s: Floats, transfer_s: Floats, prices: Floats) -> tuple[Floats, Floats]:
        """Lengths with what is paid for hosts opened, less the reward of a stage."""
        return stage_s - prices[-1], transfer_s + (self.opened @ prices)[:, None]


def build_intervals(costs: CostModel, variant: Variant, *, longest_s: float = np.inf) -> IntervalNetwork:
    """All stages that may fit in memory and have M (F + B) <= `longest_s`."""
    costs = costs.of(variant.share)
    states = build_host_states(costs.problem, costs.cluster, micro_batch=variant.micro_batch)
    placements = list(dict.fromkeys(option.placement for option in states.options))
    stages = interval_costs(costs, variant, placements, longest_s=longest_s)
    numbers = {placement: number for number, placement in enumerate(placements)}
    options, parts, size = [], [], 0
    for option in states.options:
        first, last = stages.begins[number := numbers[option.placement], [0, -1]]
        options.append((option.entry, option.exit, number, size - first))
        parts.append(stages.possible[first:last])
        size += last - first
    opened = np.zeros((len(states.crossings), len(costs.cluster.servers) + 1))
    for row, crossing in zip(opened, states.crossings, strict=True):
        entry = states.entries[crossing.entry]
        row[entry.server_class] = entry.opened_hosts
    ends = [(-1 if each.exit is None else each.exit, each.entry) for each in states.crossings]
    return IntervalNetwork(
        host_states=states,
        limits=np.array([*(server.count for server in costs.cluster.servers), -1.0]),
        stages=stages,
        options=np.array(options, dtype=np.int64).reshape(-1, 4),
        allowed=np.concatenate([np.zeros(0, dtype=bool), *parts]),
        crossings=np.array(ends, dtype=np.int64).reshape(-1, 2),
        transfers=_transfers(costs, variant, states, longest_s=longest_s),
        opened=opened,
    )


def transfer_times(costs: CostModel, variant: Variant, crossing: Crossing, at: Ints) -> tuple[Floats, Floats]:
    """Seconds of a micro-batch over a crossing at these boundaries, and of the least first part of one."""
    if crossing.link is None:
        return (nothing := np.zeros(len(at))), nothing
    message_bytes = variant.micro_batch * costs.problem.model.boundary_bytes()[at]
    transfer_s = crossing.link.transfer_s(message_bytes)
    if not costs.problem.job.may_slice(variant.schedule, variant.micro_batch):
        return transfer_s, transfer_s
    return transfer_s, np.minimum(transfer_s, half_transfer_s(crossing.link, message_bytes))


def _transfers(costs: CostModel, variant: Variant, states: HostStates, *, longest_s: float) -> Floats:
    """See :class:`IntervalNetwork`; a link that takes too long for its messages alone is none."""
    num_layers = costs.problem.model.num_layers
    seconds = np.full((2, len(states.crossings), num_layers), np.inf)
    for number, crossing in enumerate(states.crossings):
        at = np.zeros(1, dtype=np.int64) if crossing.exit is None else np.arange(1, num_layers)
        transfer_s, first_s = transfer_times(costs, variant, crossing, at)
        both = np.array([first_s + transfer_s, first_s])
        seconds[:, number, at] = np.where((variant.num_microbatches - 1) * transfer_s <= longest_s, both, np.inf)
    return seconds
