"""Branch and bound over the cuts of one interleaved shape, stage by stage.

A node is the layers of the first stages, and the modes of their device groups. Its bound is the
largest over all linear forms of their value so far and their least value over the stages to come.
Nodes are kept in blocks of one depth; the most promising block of the deepest ones is branched next,
but nodes whose bound is above a rising target wait until nothing is left below it.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.arrays import Bools, Floats, Ints
from stagecut.planner.solvers.interleaved.costs import ROUNDING, ChunkCosts
from stagecut.planner.solvers.interleaved.relaxation import Relaxation, least_values
from stagecut.planner.solvers.search.options import StopCheck

BLOCK, BLOCK_VALUES = 256, 2_000_000
"""Nodes branched at once; fewer where their children would have more values of forms."""
TARGET_STEP, LEAST_STEP = 0.125, 1e-4
"""A target is this share of the way from the least bound to the limit; the limit itself once that is so near."""
MOST_VALUES = 1_000_000
"""Of least values of forms, over stages and boundaries; where there would be more, the rows of most weight are used."""
CUTS = 16
"""Complete cuts handed out at once."""
MOST_NODES = 2_000_000
"""More are not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Nodes of one depth, the least bound first."""

    stops: NDArray[np.int16]
    """Shape (n, depth)."""
    modes: NDArray[np.int8]
    """Of all device groups, zero where not chosen yet, shape (n, D)."""
    bound_s: Floats
    """Shape (n,)."""

    def __len__(self) -> int:
        return len(self.bound_s)

    @property
    def depth(self) -> int:
        """Stages with layers."""
        return int(self.stops.shape[1])

    @property
    def last_stop(self) -> Ints:
        """Where the next stage starts, shape (n,)."""
        return self.stops[:, -1].astype(int) if self.depth else np.zeros(len(self), dtype=int)

    def taking(self, which: Ints | Bools | slice) -> "_Block":
        """Some of the nodes."""
        return _Block(stops=self.stops[which], modes=self.modes[which], bound_s=self.bound_s[which])


class Branching:
    """The nodes not yet ruled out.

    Attributes
    ----------
    bound_s
        No plan has smaller rows, save those handed out; infinite once nothing is left.
    overfull
        Whether there are more nodes than can be kept, so that no more will be proven.

    Parameters
    ----------
    rows
        Forms of the rows, shape (rows, S, costs).
    """

    def __init__(self, chunks: ChunkCosts, rows: Floats, relaxation: Relaxation) -> None:
        self.bound_s, self.overfull = relaxation.bound_s, False
        self._chunks, self._num_stages = chunks, rows.shape[1]
        heaviest = np.argsort(-relaxation.of_rows, kind="stable")
        most = max(1, MOST_VALUES // (chunks.num_layers * self._num_stages))
        self._forms = np.concatenate((relaxation.form[None], rows[heaviest[:most]]))
        self._least = least_values(chunks, self._forms)
        self._least[..., 0] += relaxation.constant_s
        root = _Block(
            stops=np.zeros((1, 0), dtype=np.int16),
            modes=np.zeros((1, chunks.shape.num_groups), dtype=np.int8),
            bound_s=np.array([relaxation.bound_s]),
        )
        self._open, self._waiting = list[_Block](), [root]
        self._target_s = 0.0
        self._size = max(1, min(BLOCK, BLOCK_VALUES // (chunks.num_layers * len(self._forms))))

    def advance(self, limit_s: float, *, max_blocks: int, stop: StopCheck) -> Ints:
        """Branch some blocks, or until there are complete cuts.

        Parameters
        ----------
        limit_s
            Nodes whose bound reaches it are given up.

        Returns
        -------
        array
            Complete cuts whose rows may be below the limit, shape (n, S); they are no longer kept.
        """
        found = np.zeros((0, self._num_stages), dtype=int)
        for _ in range(max_blocks):
            if stop() or self.overfull or len(found) or not self._choose_target(limit_s):
                break
            block = self._open.pop()
            self._put_off(block.taking((block.bound_s >= self._target_s) & (block.bound_s < limit_s)))
            block = block.taking(block.bound_s < self._target_s)
            if block.depth == self._num_stages:
                found = block.stops.astype(int)
            elif len(block):
                children = self._children(block, limit_s)
                self._put_off(children.taking(children.bound_s >= self._target_s))
                self._open += self._in_blocks(children.taking(children.bound_s < self._target_s))
        self._note()
        return found

    def _choose_target(self, limit_s: float) -> bool:
        """Take the nodes that wait if there are no others; False if there are none at all."""
        if self._open:
            self._target_s = min(self._target_s, limit_s)
            return True
        waiting, self._waiting = self._waiting, []
        self._target_s = self._next_target(waiting, limit_s)
        for depth in sorted({block.depth for block in waiting}):
            self._open += self._in_blocks(_joined([block for block in waiting if block.depth == depth]))
        return bool(self._open)

    def _next_target(self, blocks: list[_Block], limit_s: float) -> float:
        low_s = min((float(block.bound_s[0]) for block in blocks), default=limit_s)
        step_s = TARGET_STEP * (limit_s - low_s)
        return low_s + step_s if LEAST_STEP * limit_s < step_s < np.inf else limit_s

    def _put_off(self, block: _Block) -> None:
        if len(block):
            self._waiting.append(block)

    def _note(self) -> None:
        blocks = [*self._open, *self._waiting]
        self.overfull = self.overfull or sum(map(len, blocks)) > MOST_NODES
        if not self.overfull:
            self.bound_s = max(self.bound_s, min((float(block.bound_s[0]) for block in blocks), default=np.inf))

    def _children(self, block: _Block, limit_s: float) -> _Block:
        """Every way to give the next stage its layers, and a device group its mode, below the limit; sorted."""
        chunks, stage = self._chunks, block.depth
        chunk, group = divmod(stage, chunks.shape.num_groups)
        parent, stop, mode = self._choices(block, first=chunk == 0)
        added, so_far = chunks.of(stage, block.last_stop[parent], stop, mode), self._so_far(block)
        quick = so_far[parent, 0] + added @ self._forms[0, stage] + self._least[stage + 1, stop, 0] < limit_s
        parent, stop, mode, added = (array[quick] for array in (parent, stop, mode, added))
        bound_s = (so_far[parent] + added @ self._forms[:, stage].T + self._least[stage + 1, stop]).max(axis=1)
        modes = block.modes[parent]
        modes[:, group] = mode
        children = _Block(
            stops=np.column_stack((block.stops[parent], stop.astype(np.int16))),
            modes=modes,
            bound_s=np.maximum(bound_s, block.bound_s[parent]),
        )
        children = children.taking(bound_s < limit_s)
        children = children.taking(self._in_memory(children, group, last=chunk == chunks.shape.variant.chunks - 1))
        return children.taking(np.argsort(children.bound_s, kind="stable"))

    def _choices(self, block: _Block, *, first: bool) -> tuple[Ints, Ints, Ints]:
        """Parent, stop and mode of each child; a device group has a free choice of mode for its first stage."""
        stage, num_layers = block.depth, self._chunks.num_layers
        last_stop = num_layers - (self._num_stages - stage - 1)
        stops = np.arange(last_stop if stage == self._num_stages - 1 else 1, last_stop + 1)
        parent, index = np.nonzero(stops > block.last_stop[:, None])
        stop = stops[index]
        if first:
            modes = np.repeat(np.arange(self._chunks.num_modes), len(parent))
            return np.tile(parent, self._chunks.num_modes), np.tile(stop, self._chunks.num_modes), modes
        return parent, stop, block.modes[parent, stage % self._chunks.shape.num_groups].astype(int)

    def _so_far(self, block: _Block) -> Floats:
        """Values of all forms over the stages so far, shape (n, forms)."""
        stops, modes = block.stops.astype(int), block.modes.astype(int)
        costs = self._chunks.of_cuts(stops, self._chunks.modes_of_stages(modes, block.depth))
        return np.tensordot(costs, self._forms[:, : block.depth], axes=((1, 2), (1, 2)))

    def _in_memory(self, block: _Block, group: int, *, last: bool) -> Bools:
        """Whether a device group may still fit; once it is complete, also whether it needs its mode."""
        chunks, stops, mode = self._chunks, block.stops.astype(int), block.modes[:, group].astype(int)
        limit_bytes = chunks.limit_bytes
        fits: Bools = chunks.memory_bytes(group, stops, mode) <= limit_bytes * (1 + ROUNDING)
        if last and chunks.num_modes > 1:
            preferred_bytes = chunks.memory_bytes(group, stops, np.zeros_like(mode))
            fits &= (mode == 0) | (preferred_bytes > limit_bytes * (1 - ROUNDING))
        return fits

    def _in_blocks(self, nodes: _Block) -> list[_Block]:
        """Sorted nodes cut up, the most promising ones last."""
        size = CUTS if nodes.depth == self._num_stages else self._size
        ends = pairwise((*range(0, len(nodes), size), len(nodes)))
        return [nodes.taking(slice(first, last)) for first, last in ends][::-1]


def _joined(blocks: list[_Block]) -> _Block:
    """All nodes of blocks of the same depth, sorted."""
    nodes = _Block(
        stops=np.concatenate([block.stops for block in blocks]),
        modes=np.concatenate([block.modes for block in blocks]),
        bound_s=np.concatenate([block.bound_s for block in blocks]),
    )
    return nodes.taking(np.argsort(nodes.bound_s, kind="stable"))
