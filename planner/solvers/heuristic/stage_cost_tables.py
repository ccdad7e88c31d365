"""Costs of stages on every placement, in tables that many layouts share.

Times of a stage are differences of prefix sums over the layers, so a placement needs O(L) numbers; where the devices
of a replica divide each operator in its own way, that is an estimate. What fits in memory
depends only on device type, samples of a replica, tensor parallel degree and warm-up depth, not on share and schedule.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.placement import DeviceGroup, Placement
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.share import Share
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.links import half_transfer_s, link_between
from stagecut.planner.cost.stage_costs import StageCosts
from stagecut.planner.network.arrangement import RECOMPUTE_MODES

ANY_DEPTH = np.iinfo(np.int32).max
"""Stands for an unlimited warm-up depth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTable:
    """Sums over the layers before each boundary, for one placement and micro-batch size; each of shape (L + 1,)."""

    forward_s: Floats
    half_s: Floats
    """Forward of half the samples; of all samples where the replicas cannot share half a micro-batch."""
    backward_s: Floats
    """Without recomputation, which adds `forward_s`."""
    update_s: Floats
    """Optimizer step."""
    tail_s: Floats
    """Gradient all-reduce and optimizer step, without the latency."""
    tail_latency_s: float
    tail_beyond_s: Floats | None
    """Further tail of a stage [i, j), shape (L + 1, L + 1); None unless the all-reduce has a measured table."""
    plain: "Capacity"
    recomputing: "Capacity"


class MessageTable(NamedTuple):
    """Seconds of a message over each boundary, shape (L + 1,)."""

    whole_s: Floats
    half_s: Floats


class Capacity:
    """How many micro-batches in flight a stage [i, j) has memory for.

    When first needed, `depths` is asked for the largest number, negative if none fits, shape (L + 1, L + 1).
    """

    def __init__(self, depths: Callable[[], Ints]) -> None:
        self._depths = depths
        self._most: Ints | None = None
        self._starts: dict[int, Ints] = {}
        self._starts_of: dict[tuple[int, ...], NDArray[np.int16]] = {}

    def starts(self, depth: int) -> Ints:
        """For every stop, the first start with which a stage fits, the stop itself if there is none; int16."""
        if depth not in self._starts:
            self._starts[depth] = np.count_nonzero(self._table < depth, axis=0).astype(np.int16)
        return self._starts[depth]

    def starts_of(self, depths: tuple[int, ...]) -> NDArray[np.int16]:
        """The same for several depths, shape (depths, L + 1)."""
        if depths not in self._starts_of:
            rising, place = np.unique(depths, return_inverse=True)
            # A start is counted at the first depth that it has no memory for, and at all later ones.
            first, num_stops = np.searchsorted(rising, self._table, side="right"), self._table.shape[1]
            cells = (first * num_stops + np.arange(num_stops)).ravel()
            newly = np.bincount(cells, minlength=(len(rising) + 1) * num_stops).reshape(-1, num_stops)
            self._starts_of[depths] = newly.cumsum(axis=0).astype(np.int16)[place]
        return self._starts_of[depths]

    @property
    def _table(self) -> Ints:
        """The largest number of every stage, computed on first use."""
        self._most = self._depths() if self._most is None else self._most
        return self._most


def first_fit(start: Ints, plain_start: Ints, recomputing_start: Ints) -> tuple[Bools, Bools]:
    """Which stages recompute, those that do not fit otherwise, and which fit at all.

    The last two arguments are the first starts that fit without and with it, see :meth:`Capacity.starts`.
    """
    recompute = start < plain_start
    return recompute, ~recompute | (start >= recomputing_start)


class StageTables:
    """Tables of one problem, for all its shares, computed on first use."""

    def __init__(self, costs: CostModel) -> None:
        self.costs = costs
        self.num_layers = costs.problem.model.num_layers
        self.boundary_bytes = costs.problem.model.boundary_bytes()
        self._start, self._stop = np.triu_indices(self.num_layers + 1, k=1)
        self._tables: dict[tuple[Share, int, Placement], StageTable] = {}
        self._messages: dict[tuple[Share, int, Placement, Placement, bool], MessageTable] = {}
        self._capacities: dict[tuple[object, ...], Capacity] = {}

    def of(self, share: Share, micro_batch: int, placement: Placement) -> StageTable:
        """The table of a placement in the part of the cluster that a share has."""
        key = (share, micro_batch, placement)
        if key not in self._tables:
            self._tables[key] = self._table(share, micro_batch, placement)
        return self._tables[key]

    def message(self, variant: Variant, sender: DeviceGroup, receiver: DeviceGroup) -> MessageTable:
        """The messages from one stage to the next."""
        key = (variant.share, variant.micro_batch, sender.placement, receiver.placement, sender.hosts == receiver.hosts)
        if key not in self._messages:
            link = link_between(self.costs.of(variant.share).cluster, sender, receiver)
            message_bytes = variant.micro_batch * self.boundary_bytes
            self._messages[key] = MessageTable(link.transfer_s(message_bytes), half_transfer_s(link, message_bytes))
        return self._messages[key]

    def _table(self, share: Share, micro_batch: int, placement: Placement) -> StageTable:
        stops = np.arange(self.num_layers + 1)

        def sums(samples: int) -> StageCosts:
            return self.costs.of(share).stages.stages(
                placement, micro_batch=samples, recompute=False, start=np.zeros_like(stops), stop=stops
            )

        cost = sums(micro_batch)
        halves = self.costs.problem.job.slice != 0 and micro_batch % (2 * placement.replicas) == 0
        tail_s, latency_s = cost.sync_s + cost.update_s - cost.sync_s[0], float(cost.sync_s[0])
        # With one more layer a sharded stage may be divided otherwise, and one of its directions take less.
        return StageTable(
            forward_s=np.maximum.accumulate(cost.forward_s),
            half_s=sums(micro_batch // 2).forward_s if halves else cost.forward_s,
            backward_s=np.maximum.accumulate(cost.backward_s),
            update_s=cost.update_s,
            tail_s=tail_s,
            tail_latency_s=latency_s,
            tail_beyond_s=self._tails(share, micro_batch, placement) - (tail_s - tail_s[:, None] + latency_s)
            if self.costs.of(share).stages.has_sync_table(placement)
            else None,
            plain=self._capacity(share, micro_batch, placement, recompute=False),
            recomputing=self._capacity(share, micro_batch, placement, recompute=True),
        )

    def _tails(self, share: Share, micro_batch: int, placement: Placement) -> Floats:
        """All-reduce and optimizer step of every stage [i, j), shape (L + 1, L + 1)."""
        cost = self.costs.of(share).stages.stages(
            placement, micro_batch=micro_batch, recompute=False, start=self._start, stop=self._stop
        )
        tails_s = np.zeros((self.num_layers + 1, self.num_layers + 1))
        tails_s[self._start, self._stop] = cost.sync_s + cost.update_s
        return tails_s

    def _capacity(self, share: Share, micro_batch: int, placement: Placement, *, recompute: bool) -> Capacity:
        job, stages = self.costs.problem.job, self.costs.of(share).stages
        samples, copies = micro_batch / placement.replicas, placement.replicas * share.num_pipelines
        kind = stages.device_type(placement).name
        key: tuple[object, ...] = (kind, samples, placement.tensor_parallel, copies if job.zero1 else 1, recompute)
        if placement.sharding is not None:  # What is the cheapest depends on share and schedule, too.
            key = (share, micro_batch, placement, recompute)
        if key not in self._capacities:
            allowed = recompute in RECOMPUTE_MODES[job.recompute]
            depths = partial(self._depths, share, micro_batch, placement, recompute=recompute)
            self._capacities[key] = Capacity(depths if allowed else lambda: self._table_of(np.array(-1)))
        return self._capacities[key]

    def _depths(self, share: Share, micro_batch: int, placement: Placement, *, recompute: bool) -> Ints:
        stages = self.costs.of(share).stages
        cost = stages.stages(
            placement, micro_batch=micro_batch, recompute=recompute, start=self._start, stop=self._stop
        )
        left_bytes = stages.device_type(placement).memory_bytes - cost.static_bytes - cost.working_bytes
        with np.errstate(divide="ignore", invalid="ignore"):
            depth = np.where(cost.saved_bytes > 0, np.floor(left_bytes / cost.saved_bytes), ANY_DEPTH)
        return self._table_of(np.where(left_bytes >= 0, np.minimum(depth, ANY_DEPTH), -1))

    def _table_of(self, depth: Floats | Ints) -> Ints:
        table = np.full((self.num_layers + 1, self.num_layers + 1), ANY_DEPTH)
        table[self._start, self._stop] = depth
        return table
