"""What each rank computes, receives and sends, from the action lists of the device groups.

A *piece* is the part of a forward that one rank runs: samples [lo, hi) of its pipeline's batch. The activations of a
piece, and later their gradients, travel in one message per piece of the next stage that has samples in common with it.
Equal, unequal and halved micro-batches and any shares of replicas are all intersections of such pieces.

Sends and receives begin in an order common to all ranks: see :mod:`stagecut.executor.schedule.order`.
"""

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from stagecut.executor.schedule.order import Moments, RankStep, moments_of
from stagecut.executor.schedule.rank_layout import RankLayout, Role
from stagecut.planner.simulator.action_lists import Action, Op

DURATIONS = {Op.FORWARD: 1, Op.BACKWARD: 2, Op.INPUT_GRADIENT: 1, Op.WEIGHT_GRADIENT: 1}
"""Per sample, on the clock that orders messages: the stages of a good plan take about equally long."""


class Piece(NamedTuple):
    """Samples [lo, hi) of one forward of one rank."""

    stage: int
    lo: int
    hi: int


class Message(NamedTuple):
    """Samples [lo, hi) sent from one rank to another, or between stages of one rank."""

    op: Op
    """FORWARD: activations, BACKWARD: their gradients."""
    stage: int
    """Stage of the sender."""
    lo: int
    hi: int
    source: int
    """Rank."""
    target: int
    """Rank."""
    sent: Piece
    """What the sender computed."""
    taken: Piece
    """What the receiver needs it for."""
    number: int
    """Unique within the pipeline."""

    @property
    def is_local(self) -> bool:
        """Whether it stays on its rank."""
        return self.source == self.target


Messages = tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An action as one rank plays it."""

    action: Action
    pieces: tuple[Piece, ...]
    """One for a forward; for a backward, those of the forwards it covers."""
    posts: Messages = ()
    """Receives to begin before it; only for the first turn of a rank."""
    receives: Messages = ()
    """What it waits for, including messages from the rank itself."""
    releases: Messages = ()
    """Earlier sends that have certainly arrived by then, so that waiting for them costs nothing."""
    sends: Messages = ()
    """What it computes for others, including messages to the rank itself."""
    begins: Messages = ()
    """What begins after it, in the common order: its sends, and receives of later turns."""


def turns_of(lists: Sequence[Sequence[Action]], layout: RankLayout, *, pipeline: int) -> dict[int, tuple[Turn, ...]]:
    """Turns of every rank of one pipeline, by rank.

    Parameters
    ----------
    lists
        One action list per device group.
    """
    roles = [role for role in layout.roles if role.pipeline == pipeline]
    plain = {role.rank: tuple(_turns(lists[role.group], layout, role)) for role in roles}
    messages = tuple(_messages(plain, layout, pipeline))
    bare = {rank: _with_messages(turns, rank, messages) for rank, turns in plain.items()}
    done = {
        rank: {message.number: index for index, turn in enumerate(own) for message in (*turn.receives, *turn.sends)}
        for rank, own in bare.items()
    }
    begun = _begun(bare, list(dict.fromkeys(layout.sharing_ranks(role) for role in roles)))
    return {rank: tuple(_scheduled(rank, bare, done, begun[rank])) for rank in bare}


def _turns(actions: Sequence[Action], layout: RankLayout, role: Role) -> Iterator[Turn]:
    """The rank's part of each action; actions in which it has no samples are left out."""
    forwarded: dict[int, list[Piece]] = defaultdict(list)
    for action in actions:
        pieces: tuple[Piece, ...]
        if action.op is Op.FORWARD:
            lo, hi = layout.part(action.stage, role.replica, action.lo, action.hi)
            pieces = (Piece(action.stage, lo, hi),) if hi > lo else ()
            forwarded[action.stage].extend(pieces)
        else:
            own = forwarded[action.stage]
            pieces = tuple(piece for piece in own if action.lo <= piece.lo and piece.hi <= action.hi)
        if pieces:
            yield Turn(action=action, pieces=pieces)


def _messages(turns: Mapping[int, Sequence[Turn]], layout: RankLayout, pipeline: int) -> Iterator[Message]:
    """Activations and gradients over every boundary, in sample order."""
    numbers = itertools.count()
    for stage in range(layout.num_stages - 1):
        first, second = (_tiling(turns, layout, pipeline, s) for s in (stage, stage + 1))
        for tiles in _overlaps(first, second):
            lo, hi = max(tile.piece.lo for tile in tiles), min(tile.piece.hi for tile in tiles)
            for op, (sender, receiver) in ((Op.FORWARD, tiles), (Op.BACKWARD, tiles[::-1])):
                # each device of the receiving replica gets its own copy from one device of the sending replica
                for tensor_rank, target in enumerate(receiver.ranks):
                    source = sender.ranks[tensor_rank % len(sender.ranks)]
                    number = next(numbers)
                    yield Message(op, sender.piece.stage, lo, hi, source, target, sender.piece, receiver.piece, number)


class _Tile(NamedTuple):
    """A piece, and the ranks of the replica that runs it."""

    piece: Piece
    ranks: tuple[int, ...]


def _tiling(turns: Mapping[int, Sequence[Turn]], layout: RankLayout, pipeline: int, stage: int) -> list[_Tile]:
    """Every forward of a stage, by first sample."""
    tensor_ranks = range(layout.num_sharing(stage))
    replicas = [
        tuple(layout.rank_of(pipeline, stage, replica=replica, tensor_rank=index) for index in tensor_ranks)
        for replica in range(layout.num_replicas(stage))
    ]
    tiles = [
        _Tile(turn.pieces[0], ranks)
        for ranks in replicas
        for turn in turns[ranks[0]]
        if turn.action.op is Op.FORWARD and turn.action.stage == stage
    ]
    return sorted(tiles, key=lambda tile: tile.piece.lo)


def _overlaps(first: list[_Tile], second: list[_Tile]) -> Iterator[tuple[_Tile, _Tile]]:
    """Pairs of overlapping tiles from two tilings of the same samples."""
    left = right = 0
    while left < len(first) and right < len(second):
        yield first[left], second[right]
        ends = first[left].piece.hi, second[right].piece.hi  # whichever ends first gives way; both if they end together
        left += ends[0] <= ends[1]
        right += ends[1] <= ends[0]


def _with_messages(turns: Sequence[Turn], rank: int, messages: Messages) -> list[Turn]:
    """Receives and sends of each turn of a rank."""
    incoming: dict[tuple[Op, Piece], list[Message]] = defaultdict(list)
    outgoing: dict[tuple[Op, Piece], list[Message]] = defaultdict(list)
    for message in messages:
        if message.target == rank:
            incoming[message.op, message.taken].append(message)
        if message.source == rank:
            outgoing[message.op, message.sent].append(message)

    def own(of: Mapping[tuple[Op, Piece], list[Message]], turn: Turn) -> Messages:
        op = Op.FORWARD if turn.action.op is Op.FORWARD else Op.BACKWARD
        if turn.action.op is Op.WEIGHT_GRADIENT:
            return ()
        return tuple(message for piece in turn.pieces for message in of.get((op, piece), ()))

    return [
        Turn(action=turn.action, pieces=turn.pieces, receives=own(incoming, turn), sends=own(outgoing, turn))
        for turn in turns
    ]


def _begun(turns: Mapping[int, Sequence[Turn]], sharing: Sequence[tuple[int, ...]]) -> dict[int, list[list[Message]]]:
    """The messages that each rank begins before its first turn and after every turn, in the common order.

    Parameters
    ----------
    sharing
        The tensor-parallel groups.
    """
    moments = moments_of([_steps([turns[rank] for rank in ranks]) for ranks in sharing])
    ends = {rank: own for ranks, own in zip(sharing, moments.ends, strict=True) for rank in ranks}
    return {rank: _placed(turns[rank], ends[rank], moments) for rank in turns}


def _steps(shared: Sequence[Sequence[Turn]]) -> list[RankStep]:
    """The turns of a tensor-parallel group, whose ranks compute the same actions."""
    return [
        RankStep(
            duration=(action.hi - action.lo) * DURATIONS[action.op],
            needs=[message.number for turn in together for message in turn.receives],
            sends=[message.number for turn in together for message in turn.sends],
        )
        for together in zip(*shared, strict=True)
        for action in (together[0].action,)
    ]


def _placed(turns: Sequence[Turn], ends: Sequence[int], moments: Moments) -> list[list[Message]]:
    """A rank's messages, by the number of turns that have ended when they leave."""
    placed: list[list[Message]] = [[] for _ in range(len(turns) + 1)]
    own = [message for turn in turns for message in (*turn.receives, *turn.sends) if not message.is_local]
    for message in sorted(own, key=lambda message: (moments.leaving[message.number], message.number)):
        placed[bisect.bisect_right(ends, moments.leaving[message.number])].append(message)
    return placed


def _scheduled(
    rank: int,
    turns: Mapping[int, Sequence[Turn]],
    done: Mapping[int, Mapping[int, int]],
    begun: Sequence[Sequence[Message]],
) -> Iterator[Turn]:
    """Add to each turn the messages that begin before and after it, and the sends to release after its receives."""
    unreleased: dict[int, list[Message]] = defaultdict(list)
    for index, turn in enumerate(turns[rank]):
        releases: list[Message] = []
        for peer in {message.source for message in turn.receives if not message.is_local}:
            # The peer sent these messages after its turn `reached`. By then it had taken all that it takes in that turn
            # or before, so those sends of ours are over.
            reached = max(done[peer][message.number] for message in turn.receives if message.source == peer)
            arrived = [message for message in unreleased[peer] if done[peer][message.number] <= reached]
            unreleased[peer] = [message for message in unreleased[peer] if message not in arrived]
            releases += arrived
        for message in turn.sends:
            if not message.is_local:
                unreleased[message.target].append(message)
        yield replace(
            turn,
            posts=() if index else tuple(begun[0]),
            releases=tuple(releases),
            begins=tuple(begun[index + 1]),
        )
