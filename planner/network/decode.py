"""A path through the stage network as a plan."""

from collections.abc import Iterable

from stagecut.planner.core.plan import Plan
from stagecut.planner.network.arrangement import PlacedStage, assemble
from stagecut.planner.network.stage_network import StageNetwork


def decode_path(network: StageNetwork, path: Iterable[int]) -> Plan | None:
    """The plan of a path; None if it opens more hosts of a class than there are.

    On a path of a network without positions a stage may also not fit in memory at its position:
    there is no plan then either.

    Parameters
    ----------
    path
        Arcs from source to sink, in order.
    """
    arcs, stages, opens = network.arcs, [], False
    for arc in path:
        if arcs.is_stage[arc]:
            placement = network.host_states.options[int(arcs.option[arc])].placement
            stages.append(PlacedStage(stop=int(arcs.stop[arc]), placement=placement, opens=opens))
        else:
            opens = bool(arcs.opened_hosts[arc] > 0)
    return assemble(network.costs, network.variant, tuple(stages))
