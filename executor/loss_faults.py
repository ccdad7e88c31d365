"""What to say of a loss, or a norm of gradients, that is no finite number: where it came from."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from stagecut.executor.play.agreement import of_all_ranks
from stagecut.executor.play.finite import Place, first_of_all, is_finite
from stagecut.executor.play.tensor_parallel import local
from stagecut.executor.run.faults import LossError

if TYPE_CHECKING:
    from stagecut.executor.pipeline import Pipeline

REMEDY = "try a smaller learning rate, or another precision"


def loss_fault(pipeline: "Pipeline", what: str, found: Sequence[Place]) -> LossError:
    """The fault to raise on every rank, named after the earliest place that any of them has found.

    Parameters
    ----------
    what
        For example `the loss of step 3 is nan`.
    found
        Of this rank.
    """
    layout = pipeline.layout
    place = first_of_all(
        found, rank=pipeline.role.rank, layout=layout, transport=pipeline.transport, device=pipeline.device
    )
    if place is None:
        return LossError(f"{what}, though every part of it is finite; {REMEDY}", rank=0)
    action = f"F of samples [{place.lo}, {place.hi}) on stage {place.stage}"
    return LossError(
        f"{layout.roles[place.rank]}: {action}: {what}; not finite first: {place.what}; {REMEDY}", rank=place.rank
    )


def gradient_fault(pipeline: "Pipeline", what: str) -> LossError:
    """The fault to raise on every rank where the gradient of the last stage that is not finite began."""
    transport, role, layout = pipeline.transport, pipeline.role, pipeline.layout
    bad = [
        (stage, name)
        for stage, own in pipeline.parameters.items()
        for name, parameter in own.items()
        if parameter.grad is not None and not is_finite([local(parameter.grad)])
    ]
    stage, name = max(bad, key=lambda place: place[0], default=(-1, ""))
    everyone = tuple(range(layout.world_size))
    brought = of_all_ranks((stage,), rank=role.rank, ranks=everyone, transport=transport, device=pipeline.device)
    last = max(brought)[0]
    if last < 0:
        return LossError(f"{what}, though every gradient is finite; {REMEDY}", rank=0)
    rank = brought.index((last,))
    first_name = cast(str, transport.broadcast(name, rank))
    return LossError(
        f"{layout.roles[rank]}: B on stage {last}: {what}; not finite: the gradient of {first_name}; {REMEDY}",
        rank=rank,
    )
