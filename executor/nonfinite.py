"""Losses and gradient norms that are not finite: where they originated, and what to say about it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from stagecut.executor.play.context import RankContext
from stagecut.executor.play.player import Feed, Player
from stagecut.executor.play.stage import LayerState, StageModule, as_state
from stagecut.executor.play.tensor_parallel import local
from stagecut.executor.ranks.failures import LossError
from stagecut.executor.schedule.messages import Piece
from stagecut.executor.schedule.turns import Turn
from stagecut.planner.simulator.action_lists import Op

REMEDY = "try a smaller learning rate, or another precision"


class Origin(NamedTuple):
    """Samples [lo, hi) for which a tensor is not finite. In order, the earliest comes first."""

    stage: int
    lo: int
    hi: int
    depth: int
    """Within the stage: 0 is its input, 1 the output of its first layer."""
    what: str


def is_finite(tensors: Iterable[object]) -> bool:
    """Whether no floating-point tensor holds an infinity or NaN."""
    floating = (tensor for tensor in tensors if isinstance(tensor, Tensor) and tensor.is_floating_point())
    return all(bool(torch.isfinite(tensor.detach()).all()) for tensor in floating)


def loss_error(what: str, found: Sequence[Origin], context: RankContext) -> LossError:
    """The error to raise on every rank, naming the earliest origin that any rank has found; a collective.

    Parameters
    ----------
    what
        For example `the loss of step 3 is nan`.
    found
        What this rank has found.
    """
    own = min(found, default=Origin(-1, 0, 0, 0, ""))
    keys = [(*key, rank) for rank, key in enumerate(context.all_gather(own[:4]).tolist()) if key[0] >= 0]
    if not keys:
        return LossError(f"{what}, though every part of it is finite; {REMEDY}", rank=0)
    stage, lo, hi, _, rank = min(keys)
    first = context.transport.broadcast(own.what, rank)
    place = f"{context.layout.roles[rank]}: F of samples [{lo}, {hi}) on stage {stage}"
    return LossError(f"{place}: {what}; first to be not finite: {first}; {REMEDY}", rank=rank)


def gradient_error(what: str, parameters: Mapping[int, Mapping[str, nn.Parameter]], context: RankContext) -> LossError:
    """The error to raise on every rank, naming a gradient of the last stage that has one that is not finite."""
    bad = [
        (stage, name)
        for stage, own in parameters.items()
        for name, parameter in own.items()
        if parameter.grad is not None and not is_finite([local(parameter.grad)])
    ]
    stage, name = max(bad, key=lambda place: place[0], default=(-1, ""))
    stages = context.all_gather((stage,)).flatten().tolist()
    last = max(stages)
    if last < 0:
        return LossError(f"{what}, though every gradient is finite; {REMEDY}", rank=0)
    rank = stages.index(last)
    first = cast(str, context.transport.broadcast(name, rank))
    place = f"{context.layout.roles[rank]}: B on stage {last}"
    return LossError(f"{place}: {what}; not finite: the gradient of {first}; {REMEDY}", rank=rank)


def replay(turns: Sequence[Turn], feed: Feed, *, player: Player, stages: Mapping[int, StageModule]) -> list[Origin]:
    """Play the forwards once more and check the output of every layer; all ranks take part."""
    found: list[Origin] = []

    def check(tensors: Iterable[object], depth: int, what: str) -> None:
        if player.action is not None and not is_finite(tensors):
            found.append(Origin(player.action.stage, player.action.lo, player.action.hi, depth, what))

    def objective(piece: Piece, output: LayerState) -> Tensor:
        loss = feed.objective(piece, output)
        check([loss], len(stages[piece.stage].layers) + 1, "the loss")
        return loss

    with torch.no_grad(), _hooks(stages.values(), check):
        player.play(turns, Feed(inputs=feed.inputs, objective=objective))
    player.settle()
    return found


def origins_in_losses(losses: Iterable[Tensor], turns: Iterable[Turn], *, last: int) -> list[Origin]:
    """The actions of the last stage whose losses are not finite, from all of its losses in order."""
    actions = (
        turn.action for turn in turns if turn.action.op is Op.FORWARD and turn.action.stage == last for _ in turn.pieces
    )
    pairs = zip(actions, losses, strict=True)
    return [Origin(last, action.lo, action.hi, 0, "the loss") for action, loss in pairs if not is_finite([loss])]


@contextmanager
def _hooks(stages: Iterable[StageModule], check: Callable[[Iterable[object], int, str], None]) -> Iterator[None]:
    def check_input(_module: nn.Module, inputs: tuple[object, ...]) -> None:
        check(inputs, 0, "the input of the stage")

    def output_check(depth: int, name: str) -> Callable[[nn.Module, object, Tensor | Sequence[Tensor]], None]:
        return lambda _module, _inputs, output: check(as_state(output), depth, f"the output of layer {name!r}")

    handles = []
    for stage in stages:
        handles.append(stage.layers[0].register_forward_pre_hook(check_input))
        for index, (name, layer) in enumerate(zip(stage.names, stage.layers, strict=True)):
            handles.append(layer.register_forward_hook(output_check(index + 1, name)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
