"""What the stages of an interleaved shape cost, wherever the layers are cut."""

from enum import IntEnum

import numpy as np

from stagecut.planner.core.interleaving import in_flight
from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.tolerances import MEMORY_ROUNDING
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.links import link_between
from stagecut.planner.cost.stage_costs import StageCosts
from stagecut.planner.network.arrangement import RECOMPUTE_MODES
from stagecut.planner.solvers.interleaved.queues import queues_of
from stagecut.planner.solvers.interleaved.shapes import Shape


class Cost(IntEnum):
    """Index on the last axis of costs: seconds and bytes of one stage, and of the transfer behind it."""

    FORWARD = 0
    BACKWARD = 1
    TAIL = 2
    """Gradient all-reduce and optimizer step."""
    STATIC = 3
    SAVED = 4
    SYNC = 5
    """The all-reduce alone, part of the tail; a lower bound where it is measured."""
    TRANSFER = 6
    """One way, over the boundary at the stage's stop."""


OF_LAYERS = Cost.TRANSFER
"""Costs before this one are sums over the layers of a stage."""


class ChunkCosts:
    """Costs of the stages of one shape, by the layers they hold.

    A mode is an index into `recompute`; a device group takes the first in which it fits. Cuts are
    arrays of stops, shape (n, S), their last column L.
    """

    def __init__(self, costs: CostModel, shape: Shape) -> None:
        self.shape, self.num_layers = shape, costs.problem.model.num_layers
        self.limit_bytes = costs.stages.device_type(shape.placement).memory_bytes
        self.recompute = RECOMPUTE_MODES[costs.problem.job.recompute]
        tables = [self._tables(costs, recompute) for recompute in self.recompute]
        self.prefix = np.array([prefix for prefix, _, _ in tables])
        """Sums over the layers before each boundary, shape (modes, costs of layers, L + 1)."""
        self.offset = self.prefix[0, :, 0].copy()
        """Fixed cost of each stage, whatever its layers, shape (costs of layers,). The tails of a measured all-reduce
        are not linear in the layers: sum plus offset is then a lower bound."""
        self.prefix -= self.offset[:, None]
        self.offset[Cost.TAIL], self._tail_beyond_s = self._beyond(Cost.TAIL, tables[0][2][0])
        self.offset[Cost.SYNC], _ = self._beyond(Cost.SYNC, tables[0][2][1])
        self.working_bytes = np.array([working for _, working, _ in tables])
        """Of a stage with the layers [start, stop), shape (modes, L + 1, L + 1)."""
        self._actions = [in_flight(shape.order, device) for device in range(shape.num_groups)]
        if self._always_fits():
            self.recompute, self.prefix, self.working_bytes = (
                self.recompute[:1],
                self.prefix[:1],
                self.working_bytes[:1],
            )
        self.queues = queues_of(costs, shape)
        """See :class:`stagecut.planner.solvers.interleaved.queues.Queue`, shape (D,)."""
        self.transfer_s = self._transfers(costs)
        """Seconds over each boundary behind each stage, shape (S, L + 1); nothing behind the last one."""

    def of(self, stage: int, start: Ints, stop: Ints, mode: Ints) -> Floats:
        """Costs of one stage with the layers [start, stop), shape (n, costs)."""
        of_layers = self.prefix[mode, :, stop] - self.prefix[mode, :, start] + self.offset
        of_layers[:, Cost.TAIL] += self._tail_beyond_s[start, stop]
        return np.column_stack((of_layers, self.transfer_s[stage, stop]))

    def of_cuts(self, stops: Ints, modes: Ints) -> Floats:
        """Costs of the first stages of cuts, shape (n, stages, costs); `modes` has shape (n, D)."""
        costs = np.empty((*stops.shape, len(Cost)))
        for stage, (start, stop) in enumerate(zip(starts_of(stops).T, stops.T, strict=True)):
            costs[:, stage] = self.of(stage, start, stop, modes[:, stage % self.shape.num_groups])
        return costs

    def settled(self, stops: Ints) -> tuple[Ints, Bools]:
        """The first mode in which each device group fits, shape (n, D); whether there is one for all, shape (n,)."""
        modes = np.zeros((len(stops), self.shape.num_groups), dtype=int)
        fits = np.ones(len(stops), dtype=bool)
        for group in range(self.shape.num_groups):
            needed = np.array(
                [self.memory_bytes(group, stops, np.full(len(stops), mode)) for mode in range(len(self.recompute))]
            )
            roomy = needed <= self.limit_bytes
            modes[:, group] = roomy.argmax(axis=0)
            fits &= roomy.any(axis=0)
        return modes, fits

    def memory_bytes(self, group: int, stops: Ints, mode: Ints) -> Floats:
        """High-water mark of a device group with the stages it has so far, shape (n,).

        This is :func:`stagecut.planner.cost.plan_costs.shared_bytes` over many cuts at once: `stops` are those of the
        first stages of all device groups, shape (n, stages), and `mode` is that of this one, shape (n,).
        """
        held, acting = self._actions[group]
        mine = np.arange(group, stops.shape[1], self.shape.num_groups)
        start, stop, mode = starts_of(stops)[:, mine], stops[:, mine], mode[:, None]
        static = (self.prefix[mode, Cost.STATIC, stop] - self.prefix[mode, Cost.STATIC, start]).sum(axis=1)
        saved = self.prefix[mode, Cost.SAVED, stop] - self.prefix[mode, Cost.SAVED, start]
        working = np.zeros((len(stops), self.shape.variant.chunks))
        working[:, : len(mine)] = self.working_bytes[mode, start, stop]
        peak: Floats = (saved @ held[:, : len(mine)].T + working[:, acting]).max(axis=1)
        needed: Floats = static + peak
        return needed

    def most_held(self) -> tuple[Floats, Ints]:
        """Micro-batches of each chunk held during an action, and its chunk, where no other action holds as many.

        Shape (n, v + 1), device group by device group, and where those of each begin, shape (D + 1,).
        """
        rows, first = list[Floats](), [0]
        for held, acting in self._actions:
            own = np.column_stack((held, acting)).astype(float)
            above = (
                (held[:, None] <= held).all(axis=2) & (acting[:, None] == acting) & (held[:, None] < held).any(axis=2)
            )
            rows.append(own[~above.any(axis=1)])
            first.append(first[-1] + len(rows[-1]))
        return np.concatenate(rows), np.array(first)

    def memory_forms(self) -> Floats:
        """Lower bounds on the memory use of each device group as linear forms, shape (D, S, costs).

        The bytes held at the action with most micro-batches in flight, without working bytes, as a share of the limit.
        """
        shape = self.shape
        forms = np.zeros((shape.num_groups, shape.num_stages, len(Cost)))
        for group, (held, _) in enumerate(self._actions):
            stages = np.arange(group, shape.num_stages, shape.num_groups)
            forms[group, stages, Cost.STATIC] = 1 / self.limit_bytes
            forms[group, stages, Cost.SAVED] = held[held.sum(axis=1).argmax()] / self.limit_bytes
        return forms

    def _always_fits(self) -> bool:
        """Whether even all layers on one device group would fit in the first mode."""
        most_held = max(int(held.max()) for held, _ in self._actions)
        # If so the other modes can never be needed, and are dropped.
        static, saved = (self.prefix[0, cost, -1] for cost in (Cost.STATIC, Cost.SAVED))
        return bool(
            (static + most_held * saved + self.working_bytes[0].max()) * (1 + MEMORY_ROUNDING) <= self.limit_bytes
        )

    def _beyond(self, cost: Cost, seconds: Floats) -> tuple[float, Floats]:
        """Split the seconds less their sum over the layers into the least value and the rest, shape (L + 1, L + 1)."""
        start, stop = np.triu_indices(self.num_layers + 1, k=1)
        sums_s = self.prefix[0, cost]
        above_s = seconds[start, stop] - (sums_s[stop] - sums_s[start])
        beyond_s = np.zeros_like(seconds)
        beyond_s[start, stop] = above_s - above_s.min()
        return float(above_s.min()), beyond_s

    def _tables(self, costs: CostModel, recompute: bool) -> tuple[Floats, Floats, Floats]:
        """Sums before each boundary, shape (costs of layers, L + 1), and working bytes, shape (L + 1, L + 1).

        Also tails and all-reduces, shape (2, L + 1, L + 1).
        """
        size = self.num_layers + 1

        def stages(start: Ints, stop: Ints) -> StageCosts:
            micro_batch = self.shape.variant.micro_batch
            return costs.stages.stages(
                self.shape.placement, micro_batch=micro_batch, recompute=recompute, start=start, stop=stop
            )

        sums = stages(np.zeros(size, dtype=int), np.arange(size))
        start, stop = np.triu_indices(size, k=1)
        each = stages(start, stop)
        working, tails = np.zeros((size, size)), np.zeros((2, size, size))
        working[start, stop], tails[:, start, stop] = each.working_bytes, (each.sync_s + each.update_s, each.sync_s)
        bytes_of = (sums.static_bytes, sums.saved_bytes)
        prefix = np.array([sums.forward_s, sums.backward_s, sums.sync_s + sums.update_s, *bytes_of, sums.sync_s])
        return prefix, working, tails

    def _transfers(self, costs: CostModel) -> Floats:
        groups = self.shape.groups
        message_bytes = self.shape.variant.micro_batch * costs.problem.model.boundary_bytes()
        transfer_s = np.zeros((self.shape.num_stages, self.num_layers + 1))
        for stage in range(self.shape.num_stages - 1 if len(groups) > 1 else 0):
            sender, receiver = (groups[(stage + side) % len(groups)] for side in (0, 1))
            transfer_s[stage] = link_between(costs.cluster, sender, receiver).transfer_s(message_bytes)
        return transfer_s


def starts_of(stops: Ints) -> Ints:
    """First layers of the stages, shape (n, stages), from their stops."""
    return np.pad(stops[:, :-1], ((0, 0), (1, 0)))[:, : stops.shape[1]]
