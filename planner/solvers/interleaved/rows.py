"""Rows of :mod:`planner.simulator.interleaved_bounds` as linear forms in the costs of the stages.

A row there is a maximum over chunks and stages; each term of it is linear, and a row of its own here.
Left out are late rows, and the starts of fill and drain rows other than the round trip, which says most.
"""

import itertools
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from stagecut.planner.core.arrays import Floats
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.links import route_between
from stagecut.planner.solvers.interleaved.costs import Cost
from stagecut.planner.solvers.interleaved.shapes import Shape


def row_forms(costs: CostModel, shape: Shape, *, shared_only: bool) -> Floats:
    """Coefficients of every row, shape (rows, S, costs), busy and sync rows first: T is at least each form's value.

    Parameters
    ----------
    shared_only
        Only busy, fill and sync rows.
    """
    terms = _Terms(shape)
    forms = [*terms.busy(), *terms.sync(), *terms.fill()]
    if not shared_only:
        forms += [*terms.drain(), *terms.link(), *_queue(costs, shape, terms)]
    return np.array(forms)


def average_weights(shape: Shape, num_rows: int) -> Floats:
    """Weights that average one row of every device group: first its busy row, then its sync row, shape (2, rows)."""
    weights, num_groups, chunks = np.zeros((2, num_rows)), shape.num_groups, shape.variant.chunks
    num_busy = num_groups * chunks**2
    weights[0, : num_busy : chunks**2] = 1 / num_groups
    weights[1, num_busy : num_busy + num_groups * chunks : chunks] = 1 / num_groups
    return weights


class _Terms:
    """Coefficients of the quantities that rows are made of, each of shape (S, costs)."""

    def __init__(self, shape: Shape) -> None:
        self._order, self._num_stages = shape.order, shape.num_stages
        self._groups = range(shape.num_groups)
        self._chunks = range(shape.variant.chunks)
        self._before_first_backward = self._order.before_first_backward

    def busy(self) -> Iterator[Floats]:
        """Arrive + work + home + g_0, for every device group, chunk to arrive and chunk to go home."""
        for group, first, last in itertools.product(self._groups, self._chunks, self._chunks):
            home = self._way(group, last, Cost.BACKWARD)
            yield self._way(group, first, Cost.FORWARD) + self._work(group) + home + self.tail(0)

    def sync(self) -> Iterator[Floats]:
        """Arrive + work + g, for every device group and chunk."""
        for group, first in itertools.product(self._groups, self._chunks):
            yield self._way(group, first, Cost.FORWARD) + self._work(group) + self.tail(group)

    def fill(self) -> Iterator[Floats]:
        """Total - PB_s - B_s + work - before + PB_d + g_0, for every stage."""
        for stage in range(self._num_stages):
            group = stage % len(self._groups)
            yield self._from_first_backward(stage) + self._before(group, Cost.BACKWARD) + self.tail(0)

    def drain(self) -> Iterator[Floats]:
        """Total - PB_s - B_s + work - before + g, for every stage."""
        for stage in range(self._num_stages):
            yield self._from_first_backward(stage) + self.tail(stage % len(self._groups))

    def link(self) -> Iterator[Floats]:
        """Total + (M - 1) c + g_0, for every boundary."""
        for stage in range(self._num_stages - 1):
            form = self._round_trip + self.tail(0)
            form[stage, Cost.TRANSFER] += self._order.num_microbatches - 1
            yield form

    def tail(self, group: int) -> Floats:
        """All tails of a device group."""
        return self._of_group(group, Cost.TAIL)

    @cached_property
    def _round_trip(self) -> Floats:
        form = self._zeros()
        form[:, [Cost.FORWARD, Cost.BACKWARD]] = 1
        form[:-1, Cost.TRANSFER] = 2
        return form

    def _from_first_backward(self, stage: int) -> Floats:
        """Total - PB - B + work - before: the earliest end of all work behind the first backward of a stage."""
        form = self._round_trip - self._before(stage, Cost.BACKWARD)
        form[stage, Cost.BACKWARD] -= 1
        chunk, group = divmod(stage, len(self._groups))
        return form + self._work(group) - self._until_first_backward(chunk, group)

    def _until_first_backward(self, chunk: int, group: int) -> Floats:
        """What stands before the first backward of a stage on the list of its device group."""
        form = self._zeros()
        for cost, counts in zip((Cost.FORWARD, Cost.BACKWARD), self._before_first_backward, strict=True):
            form[group :: len(self._groups), cost] = counts[chunk, group]
        return form

    def _way(self, group: int, chunk: int, cost: Cost) -> Floats:
        """PF or PB of a stage, less a round of each chunk before it on its device group."""
        size = len(self._groups)
        form = self._before(chunk * size + group, cost)
        form[group : chunk * size : size, cost] -= size
        return form

    def _before(self, stage: int, cost: Cost) -> Floats:
        """PF or PB of a stage."""
        form = self._zeros()
        form[:stage, [cost, Cost.TRANSFER]] = 1
        return form

    def _work(self, group: int) -> Floats:
        both = self._of_group(group, Cost.FORWARD) + self._of_group(group, Cost.BACKWARD)
        return self._order.num_microbatches * both

    def _of_group(self, group: int, cost: Cost) -> Floats:
        form = self._zeros()
        form[group :: len(self._groups), cost] = 1
        return form

    def _zeros(self) -> Floats:
        return np.zeros((self._num_stages, len(Cost)))


def _queue(costs: CostModel, shape: Shape, terms: _Terms) -> Iterator[Floats]:
    """F_0 + all messages of a shared link + B_0 + g_0.

    Every message waits for the first forward of all, and leaves the last backward of all to do.
    """
    hostings, messages = shape.hostings, dict[str, Floats]()
    shares = dict[str, int]()
    for stage in range(shape.num_stages - 1 if len(hostings) > 1 else 0):
        ends = [hostings[(stage + side) % len(hostings)] for side in (0, 1)]
        for sender, receiver in (ends, ends[::-1]):
            for name in dict.fromkeys(route_between(costs.cluster, sender, receiver)):
                form = messages.setdefault(name, terms.tail(0))
                form[stage, Cost.TRANSFER] += shape.variant.num_microbatches
                shares[name] = shares.get(name, 0) + 1
    for name, form in messages.items():
        if shares[name] > 1:
            form[0, [Cost.FORWARD, Cost.BACKWARD]] += 1
            yield form
