"""What each rank computes, receives and sends, from the action lists of the device groups.

Sends and receives begin in an order common to all ranks: see :mod:`stagecut.executor.schedule.order`.
"""

import bisect
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stagecut.executor.schedule.messages import DIRECTION, Message, Messages, Piece, messages_of
from stagecut.executor.schedule.order import Moments, RankStep, moments_of
from stagecut.executor.schedule.rank_layout import RankLayout, Role
from stagecut.planner.simulator.action_lists import Action, Op

DURATIONS = {Op.FORWARD: 1, Op.BACKWARD: 2, Op.INPUT_GRADIENT: 1, Op.WEIGHT_GRADIENT: 1}
"""Per sample, on the clock that orders messages: the stages of a good plan take about equally long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An action as one rank plays it."""

    action: Action
    pieces: tuple[Piece, ...]
    """One for a forward; for a backward, those of the forwards it covers."""
    posts: Messages = ()
    """Receives to begin before it; only for the first turn of a rank."""
    receives: Messages = ()
    """What it waits for, including messages from the rank itself; later turns may need other parts of them."""
    releases: Messages = ()
    """Earlier sends that have certainly arrived by then, so that waiting for them costs nothing."""
    fills: Messages = ()
    """Messages that it computes parts of, including those to the rank itself."""
    sends: Messages = ()
    """Those of them that are complete with it."""
    begins: Messages = ()
    """What begins after it, in the common order: its sends, and receives of later turns."""


def turns_of(
    lists: Sequence[Sequence[Action]], layout: RankLayout, *, pipeline: int, training: bool = True
) -> dict[int, tuple[Turn, ...]]:
    """Turns of every rank of one pipeline, by rank.

    Parameters
    ----------
    lists
        One action list per device group.
    training
        Whether backwards are played as well; messages have the same numbers without them.
    """
    roles = [role for role in layout.roles if role.pipeline == pipeline]
    plain = {role.rank: list(_turns(lists[role.group], layout, role)) for role in roles}
    forwards = {rank: [turn for turn in own if turn.action.op is Op.FORWARD] for rank, own in plain.items()}
    pieces = {rank: [turn.pieces[0] for turn in own] for rank, own in forwards.items()}
    messages = tuple(messages_of(lists, pieces, layout, pipeline=pipeline))
    bare = {
        rank: list(_with_messages(turns, rank, messages)) for rank, turns in (plain if training else forwards).items()
    }
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


def _with_messages(turns: Sequence[Turn], rank: int, messages: Messages) -> Iterator[Turn]:
    """The turns of a rank with what each waits for, computes and completes."""
    incoming: dict[tuple[Op, Piece], dict[int, Message]] = defaultdict(dict)
    outgoing: dict[tuple[Op, Piece], dict[int, Message]] = defaultdict(dict)
    for message in messages:
        for part in message.parts:
            if message.target == rank:
                incoming[message.op, part.taken][message.number] = message
            if message.source == rank:
                outgoing[message.op, part.sent][message.number] = message
    missing = {message.number: {part.sent for part in message.parts} for message in messages}
    taken: set[int] = set()
    for turn in turns:
        keys = [(op, piece) for op in (DIRECTION.get(turn.action.op),) if op for piece in turn.pieces]
        needed = {number: message for key in keys for number, message in incoming.get(key, {}).items()}
        filled = {number: message for key in keys for number, message in outgoing.get(key, {}).items()}
        for number in filled:
            missing[number].difference_update(turn.pieces)
        yield replace(
            turn,
            receives=tuple(message for number, message in needed.items() if number not in taken),
            fills=tuple(filled.values()),
            sends=tuple(message for number, message in filled.items() if not missing[number]),
        )
        taken.update(needed)


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
