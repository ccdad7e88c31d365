"""A path through the stage network as a plan."""

from collections.abc import Iterable

from planner.core.plan import Plan
from planner.network.layout import Cut, plan_of
from planner.network.seating import Seat, seat_stages
from planner.network.stage_network import StageNetwork


def decode_path(network: StageNetwork, path: Iterable[int]) -> Plan | None:
    """The plan of a path, or None if the path opens more hosts of a class than there are.

    Parameters
    ----------
    path
        Arcs from source to sink, in order.
    """
    arcs = network.arcs
    stage_arcs, seats = [], []
    opens = False
    for arc in path:
        if arcs.is_stage[arc]:
            stage_arcs.append(arc)
            seats.append(Seat(placement=network.placement(arc), opens=opens))
        else:
            opens = bool(arcs.opened_hosts[arc] > 0)
    devices = seat_stages(network.cluster, seats)
    if devices is None:
        return None
    return plan_of(
        network.variant,
        [
            Cut(
                start=int(arcs.start[arc]),
                stop=int(arcs.stop[arc]),
                devices=names,
                recompute=bool(arcs.recompute[arc]),
            )
            for arc, names in zip(stage_arcs, devices, strict=True)
        ],
    )
