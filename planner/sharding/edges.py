"""What a tensor costs on its way from one operator to the next, and its gradient on the way back."""

from collections.abc import Iterable
from dataclasses import dataclass

from stagecut.planner.sharding.collectives import Collective
from stagecut.planner.sharding.conversions import Step, conversion
from stagecut.planner.sharding.mesh import Mesh
from stagecut.planner.sharding.operator_costs import NO_TRAFFIC, Traffic
from stagecut.planner.sharding.placements import Placements


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEnds:
    """Placements of a tensor and of its gradient where it is made and where it is taken."""

    made: Placements
    made_gradient: Placements
    """Where the maker needs the gradient."""
    taken: Placements
    taken_gradient: Placements
    """Where the taker leaves the gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeCosts:
    """Conversions of a tensor, per micro-batch."""

    forward: Traffic
    backward: Traffic
    again: Traffic
    """What is repeated for the backward: the steps of the forward from its first all-gather on, since only the part
    before it is kept. They run beside computation: their bytes count, their seconds do not."""


def edge_costs(mesh: Mesh, ends: TensorEnds, *, num_bytes: float, saved: bool) -> EdgeCosts | None:
    """Costs of a tensor of so many bytes per micro-batch; None if there is no way between its ends.

    One of no bytes costs nothing: the input of the first layer is loaded where it is needed and has no gradient.
    """
    there = conversion(mesh, ends.made, ends.taken, num_bytes=num_bytes)
    back = conversion(mesh, ends.taken_gradient, ends.made_gradient, num_bytes=num_bytes)
    if there is None or back is None:
        return None
    if num_bytes == 0:
        return EdgeCosts(forward=NO_TRAFFIC, backward=NO_TRAFFIC, again=NO_TRAFFIC)
    kept = next((n for n, step in enumerate(there) if step.collective is Collective.ALL_GATHER), len(there))
    return EdgeCosts(
        forward=_traffic(mesh, there),
        backward=_traffic(mesh, back),
        again=_traffic(mesh, there[kept:] if saved else ()),
    )


def _traffic(mesh: Mesh, steps: Iterable[Step]) -> Traffic:
    steps = tuple(steps)
    return Traffic(
        seconds=sum(step.seconds(mesh) for step in steps), sent_bytes=sum(step.sent_bytes(mesh) for step in steps)
    )
