"""What the ranks of a pipeline send each other.

A *piece* is the part of a forward that one rank runs: samples [lo, hi) of its pipeline's batch. A *cell* is a message
as the simulator has it: so many samples that cross a boundary in one direction. What one rank has of a cell for another
is one message, whose *parts* are the intersections of the cell with pieces of both. Equal, halved and unequal
micro-batches, messages of their own size and any shares of replicas are all intersections of such tilings.
"""

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from stagecut.executor.schedule.rank_layout import RankLayout
from stagecut.planner.core.sublot_sizes import sublot_cuts
from stagecut.planner.simulator.action_lists import Action, Op

DIRECTION = {Op.FORWARD: Op.FORWARD, Op.BACKWARD: Op.BACKWARD, Op.INPUT_GRADIENT: Op.BACKWARD}
"""What the messages of an action carry; the second half of a split backward has none."""


class Piece(NamedTuple):
    """Samples [lo, hi) of one forward of one rank."""

    stage: int
    lo: int
    hi: int


class Part(NamedTuple):
    """Samples [lo, hi) of a message."""

    lo: int
    hi: int
    sent: Piece
    """What the sender computed."""
    taken: Piece
    """What the receiver needs them for."""


class Message(NamedTuple):
    """What one rank has of a cell for another, or for another of its own stages."""

    op: Op
    """FORWARD: activations, BACKWARD: their gradients."""
    stage: int
    """Stage of the sender."""
    lo: int
    """First sample of the cell."""
    hi: int
    """Sample after the last one of the cell."""
    source: int
    """Rank."""
    target: int
    """Rank."""
    parts: tuple[Part, ...]
    """In sample order."""
    number: int
    """Unique within the pipeline."""

    @property
    def is_local(self) -> bool:
        """Whether it stays on its rank."""
        return self.source == self.target


Messages = tuple[Message, ...]


def messages_of(
    lists: Sequence[Sequence[Action]], pieces: Mapping[int, Sequence[Piece]], layout: RankLayout, *, pipeline: int
) -> Iterator[Message]:
    """Activations and gradients over every boundary of a pipeline, by the first sample of their cells.

    Parameters
    ----------
    lists
        One action list per device group.
    pieces
        Those of every rank of the pipeline.
    """
    numbers = itertools.count()
    tilings = [_tiling(pieces, layout, pipeline, stage) for stage in range(layout.num_stages)]
    sizes = layout.message_sizes
    for stage in range(layout.num_stages - 1):
        cuts = (
            _cell_cuts(lists, op, stages=(stage, stage + 1), size=size)
            for op, size in ((Op.FORWARD, sizes.forward[stage]), (Op.BACKWARD, sizes.backward[stage]))
        )
        there = _flow(Op.FORWARD, next(cuts), tilings[stage], tilings[stage + 1])
        back = _flow(Op.BACKWARD, next(cuts), tilings[stage + 1], tilings[stage])
        for message in sorted((*there, *back), key=lambda message: message.lo):
            yield message._replace(number=next(numbers))


class _Tile(NamedTuple):
    """A piece, and the ranks of the replica that runs it."""

    piece: Piece
    ranks: tuple[int, ...]


def _tiling(pieces: Mapping[int, Sequence[Piece]], layout: RankLayout, pipeline: int, stage: int) -> list[_Tile]:
    """Every piece of a stage, by first sample."""
    tensor_ranks = range(layout.num_sharing(stage))
    replicas = [
        tuple(layout.rank_of(pipeline, stage, replica=replica, tensor_rank=index) for index in tensor_ranks)
        for replica in range(layout.num_replicas(stage))
    ]
    tiles = [_Tile(piece, ranks) for ranks in replicas for piece in pieces[ranks[0]] if piece.stage == stage]
    return sorted(tiles, key=lambda tile: tile.piece.lo)


def _cell_cuts(
    lists: Sequence[Sequence[Action]], op: Op, *, stages: tuple[int, int], size: int | None
) -> Sequence[int]:
    """Where the samples of a boundary are cut into cells: at the ends of actions, or every so many samples."""
    actions = [action for own in lists for action in own if action.stage in stages and DIRECTION.get(action.op) is op]
    if size is None:
        return sorted({cut for action in actions for cut in (action.lo, action.hi)})
    cuts: list[int] = sublot_cuts(max(action.hi for action in actions), size).tolist()
    return cuts


def _flow(op: Op, cuts: Sequence[int], senders: Sequence[_Tile], receivers: Sequence[_Tile]) -> Iterator[Message]:
    """The messages over one boundary in one direction, not yet numbered."""
    parts: dict[tuple[int, int, int, int], list[Part]] = defaultdict(list)
    ends = sorted({*cuts, *(tile.piece.lo for tile in (*senders, *receivers))})
    for lo, hi in itertools.pairwise(ends):
        cell = bisect.bisect_right(cuts, lo)
        sender, receiver = (_holding(tiles, lo) for tiles in (senders, receivers))
        # each device of the receiving replica gets its own copy from one device of the sending replica
        for tensor_rank, target in enumerate(receiver.ranks):
            source = sender.ranks[tensor_rank % len(sender.ranks)]
            parts[cuts[cell - 1], cuts[cell], source, target].append(Part(lo, hi, sender.piece, receiver.piece))
    stage = senders[0].piece.stage
    for (lo, hi, source, target), own in parts.items():
        yield Message(op, stage, lo, hi, source, target, tuple(own), number=-1)


def _holding(tiles: Sequence[_Tile], sample: int) -> _Tile:
    return tiles[bisect.bisect_right(tiles, sample, key=lambda tile: tile.piece.lo) - 1]
