"""A path through the stage network as a plan."""

from collections.abc import Iterable

from planner.core.plan import Pipeline, Plan, Stage
from planner.network.seating import Seat, seat_stages
from planner.network.stage_network import StageNetwork


def decode_path(network: StageNetwork, path: Iterable[int]) -> Plan | None:
    """The plan of a path, or None if the path opens more hosts of a class than there are.

    Parameters
    ----------
    path
        Arcs from source to sink, in order.
    """
    arcs, variant = network.arcs, network.variant
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
    stages = tuple(
        Stage(
            start=int(arcs.start[arc]),
            stop=int(arcs.stop[arc]),
            devices=names,
            replicas=len(names),
            recompute=bool(arcs.recompute[arc]),
            warmup_depth=int(network.depths[arcs.position[arc]]),
            forward_micro_batch=variant.micro_batch,
            backward_micro_batch=variant.micro_batch,
        )
        for arc, names in zip(stage_arcs, devices, strict=True)
    )
    return Plan(
        schedule=variant.schedule,
        micro_batch=variant.micro_batch,
        num_microbatches=variant.num_microbatches,
        pipelines=(Pipeline(stages=stages),),
    )
