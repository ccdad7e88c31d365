"""Where numbers stop being finite: looked for when a loss has turned out not to be."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stagecut.executor.play.agreement import of_all_ranks
from stagecut.executor.play.layout import Layout
from stagecut.executor.play.messages import Piece, Turn
from stagecut.executor.play.player import Feed, Player
from stagecut.executor.play.stage import StageModule, State, as_state
from stagecut.executor.play.transport import Transport
from stagecut.planner.simulator.action_lists import Op


class Place(NamedTuple):
    """Samples [lo, hi) in which a rank has found numbers that are not finite; earlier ones come first."""

    stage: int
    lo: int
    hi: int
    depth: int
    """In the stage: 0 is what comes in, 1 behind its first layer."""
    rank: int
    what: str


def is_finite(tensors: Iterable[object]) -> bool:
    """Whether there is neither infinity nor NaN in tensors of floating-point numbers."""
    floating = (tensor for tensor in tensors if isinstance(tensor, Tensor) and tensor.is_floating_point())
    return all(bool(torch.isfinite(tensor.detach()).all()) for tensor in floating)


def look_again(
    turns: Sequence[Turn], feed: Feed, *, player: Player, stages: Mapping[int, StageModule], rank: int
) -> list[Place]:
    """Play forwards once more and look at what every layer gives; all ranks take part."""
    found: list[Place] = []

    def note(tensors: Iterable[object], depth: int, what: str) -> None:
        if player.action is not None and not is_finite(tensors):
            action = player.action
            found.append(Place(action.stage, action.lo, action.hi, depth, rank, what))

    def objective(piece: Piece, output: State) -> Tensor:
        loss = feed.objective(piece, output)
        note([loss], len(stages[piece.stage].layers) + 1, "the loss")
        return loss

    with torch.no_grad(), _hooks(stages.values(), note):
        player.play(turns, Feed(inputs=feed.inputs, objective=objective))
    player.settle()
    return found


def places_of_losses(losses: Iterable[Tensor], turns: Iterable[Turn], *, last: int, rank: int) -> list[Place]:
    """The actions of the last stage whose losses are not finite, from all of its losses in order."""
    actions = (
        turn.action for turn in turns if turn.action.op is Op.FORWARD and turn.action.stage == last for _ in turn.pieces
    )
    pairs = zip(actions, losses, strict=True)
    return [Place(last, action.lo, action.hi, 0, rank, "the loss") for action, loss in pairs if not is_finite([loss])]


def first_of_all(
    found: Sequence[Place], *, rank: int, layout: Layout, transport: Transport, device: torch.device
) -> Place | None:
    """The earliest place of all ranks, the same on each; None where nobody has found any."""
    own = min(found, default=Place(-1, 0, 0, 0, rank, ""))
    everyone = tuple(range(layout.world_size))
    brought = of_all_ranks(own[:4], rank=rank, ranks=everyone, transport=transport, device=device)
    places = [(*values, other) for other, values in enumerate(brought) if values[0] >= 0]
    if not places:
        return None
    stage, lo, hi, depth, source = min(places)
    return Place(stage, lo, hi, depth, source, str(transport.broadcast(own.what, source)))


@contextmanager
def _hooks(stages: Iterable[StageModule], note: Callable[[Iterable[object], int, str], None]) -> Iterator[None]:
    def before(_module: nn.Module, inputs: tuple[object, ...]) -> None:
        note(inputs, 0, "what comes in")

    def behind(depth: int, name: str) -> Callable[[nn.Module, object, Tensor | Sequence[Tensor]], None]:
        return lambda _module, _inputs, output: note(as_state(output), depth, f"the output of layer {name!r}")

    handles = []
    for stage in stages:
        handles.append(stage.layers[0].register_forward_pre_hook(before))
        for index, (name, layer) in enumerate(zip(stage.names, stage.layers, strict=True)):
            handles.append(layer.register_forward_hook(behind(index + 1, name)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
