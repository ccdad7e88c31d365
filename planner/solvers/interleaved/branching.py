"""Branch and bound over the cuts of one interleaved shape, stage by stage.

A node fixes the layers of the first s stages, and the modes of their device groups. Its bound is

    max over forms f of  value of f over stages 0 .. s - 1  +  least value of f over stages s .. S - 1,

the latter tabulated for every boundary by :func:`least_values`. Nodes are kept in batches of one depth.
The search goes depth first, best bounds first, among the nodes below a target; the others wait until
none is left there, and the target rises towards the limit.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.tolerances import MEMORY_ROUNDING
from stagecut.planner.solvers.interleaved.costs import ChunkCosts
from stagecut.planner.solvers.interleaved.critical_paths import CriticalPaths
from stagecut.planner.solvers.interleaved.relaxation import Relaxation, least_values
from stagecut.planner.solvers.search.options import StopCheck

# Half or twice each of these changed neither plan nor bound for gpt-mini on mixed-server-8; nor did BATCH, TARGET_STEP
# or half of MAX_VALUES for vgg16 and resnet50 there (gaps 0.1 and 1 %), with up to 2 % more or fewer plans simulated.
BATCH, BATCH_VALUES = 256, 2_000_000
"""Nodes branched at once; fewer where evaluating their children would take more values of forms (memory)."""
TARGET_STEP, LEAST_STEP = 0.125, 1e-4
"""The target lies this share of the way from the least bound to the limit, and at the limit once the step would be
smaller than this share of it."""
MAX_VALUES = 1_000_000
"""Entries of the table of least values (memory); only as many rows as fit are used, those of the largest weights."""
NUM_CUTS = 16
"""Complete cuts returned at once: each improvement found among them lowers the limit for the others. 8 and 32 changed
no plan on gpt-mini and bert-large on mixed-server-8 and vit-large on h100-8, and bounds by 0.02 % at most."""
MAX_NODES = 2_000_000
"""Nodes kept (memory)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Nodes of one depth, the least bound first."""

    stops: NDArray[np.int16]
    """Shape (n, depth)."""
    modes: NDArray[np.int8]
    """Mode of each device group, zero where not chosen yet, shape (n, D)."""
    bound_s: Floats
    """Shape (n,)."""

    def __len__(self) -> int:
        return len(self.bound_s)

    @property
    def depth(self) -> int:
        """Number of stages that have their layers."""
        return int(self.stops.shape[1])

    @property
    def last_stop(self) -> Ints:
        """Where the next stage starts, shape (n,)."""
        return self.stops[:, -1].astype(int) if self.depth else np.zeros(len(self), dtype=int)

    def __getitem__(self, which: Ints | Bools | slice) -> "_Batch":
        return _Batch(stops=self.stops[which], modes=self.modes[which], bound_s=self.bound_s[which])


class Branching:
    """Branch and bound over the cuts of one shape; holds the nodes not yet ruled out.

    `rows` are the forms of the rows, shape (rows, S, costs).
    """

    def __init__(self, chunks: ChunkCosts, rows: Floats, relaxation: Relaxation) -> None:
        self.bound_s = relaxation.bound_s
        """No plan has smaller rows, except for the cuts already returned; infinite once no node is left."""
        self.overfull = False
        """Whether there were more nodes than can be kept, so that the bound will not rise any further."""
        self._chunks, self._num_stages = chunks, rows.shape[1]
        heaviest = np.argsort(-relaxation.of_rows, kind="stable")
        self._num_rows = max(1, MAX_VALUES // (chunks.num_layers * self._num_stages))
        self._forms = np.concatenate((relaxation.form[None], rows[heaviest[: self._num_rows]]))
        self._least = least_values(chunks, self._forms)
        self._least[..., 0] += relaxation.constant_s
        root = _Batch(
            stops=np.zeros((1, 0), dtype=np.int16),
            modes=np.zeros((1, chunks.shape.num_groups), dtype=np.int8),
            bound_s=np.array([relaxation.bound_s]),
        )
        self._open, self._waiting = list[_Batch](), [root]
        self._target_s = 0.0

    @property
    def _size(self) -> int:
        """Nodes branched at once."""
        return max(1, min(BATCH, BATCH_VALUES // (self._chunks.num_layers * len(self._forms))))

    def learn(self, stops: Ints, paths: CriticalPaths) -> None:
        """Take the critical paths of complete cuts, shape (n, S), as rows where they are the largest ones there."""
        modes, _ = self._chunks.settled(stops)
        for costs in self._chunks.of_cuts(stops, modes):
            row = paths.row(costs)
            if len(self._forms) > self._num_rows:
                return
            if np.sum(row * costs) > np.tensordot(self._forms[1:], costs, axes=2).max() * (1 + LEAST_STEP):
                self._forms = np.concatenate((self._forms, row[None]))
                self._least = np.concatenate((self._least, least_values(self._chunks, row[None])), axis=2)

    def advance(self, limit_s: float, *, max_batches: int, stop: StopCheck) -> Ints:
        """Branch at most so many batches; return the first complete cuts whose rows may be below the limit.

        These have shape (n, S). Their nodes are dropped, and so are those whose bound reaches the limit.
        """
        found = np.zeros((0, self._num_stages), dtype=int)
        for _ in range(max_batches):
            if stop() or self.overfull or len(found) or not self._choose_target(limit_s):
                break
            batch = self._open.pop()
            # Batches that waited are opened whole, with nodes above the target too; and the limit may have fallen.
            self._defer(batch[(batch.bound_s >= self._target_s) & (batch.bound_s < limit_s)])
            batch = batch[batch.bound_s < self._target_s]
            if batch.depth == self._num_stages:
                found = batch.stops.astype(int)
            elif len(batch):
                children = self._children(batch, limit_s)
                self._defer(children[children.bound_s >= self._target_s])
                self._open += self._in_batches(children[children.bound_s < self._target_s])
        self._update_bound()
        return found

    def _choose_target(self, limit_s: float) -> bool:
        """Once no node is left below the target, raise it and open those that wait; False if there are none."""
        if self._open:
            self._target_s = min(self._target_s, limit_s)
            return True
        waiting, self._waiting = self._waiting, []
        low_s = _least_bound(waiting, default=limit_s)
        step_s = TARGET_STEP * (limit_s - low_s)
        self._target_s = low_s + step_s if LEAST_STEP * limit_s < step_s < np.inf else limit_s
        for depth in sorted({batch.depth for batch in waiting}):
            self._open += self._in_batches(_joined([batch for batch in waiting if batch.depth == depth]))
        return bool(self._open)

    def _defer(self, batch: _Batch) -> None:
        if len(batch):
            self._waiting.append(batch)

    def _update_bound(self) -> None:
        batches = [*self._open, *self._waiting]
        self.overfull = self.overfull or sum(map(len, batches)) > MAX_NODES
        if not self.overfull:
            self.bound_s = max(self.bound_s, _least_bound(batches, default=np.inf))

    def _children(self, batch: _Batch, limit_s: float) -> _Batch:
        """Every choice of layers for the next stage, and of a mode for its device group, below the limit; sorted."""
        chunks, stage = self._chunks, batch.depth
        chunk, group = divmod(stage, chunks.shape.num_groups)
        parent, stop, mode = self._options(batch, first=chunk == 0)
        added, so_far = chunks.of(stage, batch.last_stop[parent], stop, mode), self._so_far(batch)
        # The weighted sum of all rows rules most children out, before each row is evaluated.
        quick = so_far[parent, 0] + added @ self._forms[0, stage] + self._least[stage + 1, stop, 0] < limit_s
        parent, stop, mode, added = (array[quick] for array in (parent, stop, mode, added))
        bound_s = (so_far[parent] + added @ self._forms[:, stage].T + self._least[stage + 1, stop]).max(axis=1)
        modes = batch.modes[parent]
        modes[:, group] = mode
        children = _Batch(
            stops=np.column_stack((batch.stops[parent], stop.astype(np.int16))),
            modes=modes,
            bound_s=np.maximum(bound_s, batch.bound_s[parent]),
        )
        children = children[bound_s < limit_s]
        children = children[self._in_memory(children, group, last=chunk == chunks.shape.variant.chunks - 1)]
        return children[np.argsort(children.bound_s, kind="stable")]

    def _options(self, batch: _Batch, *, first: bool) -> tuple[Ints, Ints, Ints]:
        """Parent, stop and mode of each child; the mode is chosen with the first stage of a device group."""
        stage, num_layers = batch.depth, self._chunks.num_layers
        last_stop = num_layers - (self._num_stages - stage - 1)
        stops = np.arange(last_stop if stage == self._num_stages - 1 else 1, last_stop + 1)
        parent, index = np.nonzero(stops > batch.last_stop[:, None])
        stop = stops[index]
        if first:
            num_modes = len(self._chunks.recompute)
            return np.tile(parent, num_modes), np.tile(stop, num_modes), np.repeat(np.arange(num_modes), len(parent))
        return parent, stop, batch.modes[parent, stage % self._chunks.shape.num_groups].astype(int)

    def _so_far(self, batch: _Batch) -> Floats:
        """Values of all forms over the stages so far, shape (n, forms)."""
        costs = self._chunks.of_cuts(batch.stops.astype(int), batch.modes.astype(int))
        return np.tensordot(costs, self._forms[:, : batch.depth], axes=((1, 2), (1, 2)))

    def _in_memory(self, batch: _Batch, group: int, *, last: bool) -> Bools:
        """Whether a device group may still fit and, with its last stage, whether it fits in no earlier mode."""
        chunks, stops, mode = self._chunks, batch.stops.astype(int), batch.modes[:, group].astype(int)
        limit_bytes = chunks.limit_bytes
        fits: Bools = chunks.memory_bytes(group, stops, mode) <= limit_bytes * (1 + MEMORY_ROUNDING)
        # A group takes the first mode in which it fits, so the second one needs a first that does not.
        if last and len(chunks.recompute) > 1:
            preferred_bytes = chunks.memory_bytes(group, stops, np.zeros_like(mode))
            fits &= (mode == 0) | (preferred_bytes > limit_bytes * (1 - MEMORY_ROUNDING))
        return fits

    def _in_batches(self, nodes: _Batch) -> list[_Batch]:
        """Split sorted nodes, the most promising ones last."""
        size = NUM_CUTS if nodes.depth == self._num_stages else self._size
        ends = pairwise((*range(0, len(nodes), size), len(nodes)))
        return [nodes[first:last] for first, last in ends][::-1]


def _least_bound(batches: list[_Batch], *, default: float) -> float:
    return min((float(batch.bound_s[0]) for batch in batches), default=default)


def _joined(batches: list[_Batch]) -> _Batch:
    """All nodes of batches of the same depth, sorted."""
    nodes = _Batch(
        stops=np.concatenate([batch.stops for batch in batches]),
        modes=np.concatenate([batch.modes for batch in batches]),
        bound_s=np.concatenate([batch.bound_s for batch in batches]),
    )
    return nodes[np.argsort(nodes.bound_s, kind="stable")]
