"""A path through the stage network as a plan."""

from collections.abc import Iterable

from stagecut.planner.core.plan import Plan
from stagecut.planner.network.arrangement import PlacedStage, assemble
from stagecut.planner.network.stage_network import StageNetwork


def decode_path(network: StageNetwork, path: Iterable[int]) -> Plan | None:
    """The plan of a path, given as arcs from source to sink; None if it opens more hosts of a class than there are.

    Without positions there is also no plan if a stage does not fit in memory at the position it turns out to have.
    """
    arcs, stages, opens = network.arcs, [], False
    for arc in path:
        if arcs.is_stage[arc]:
            placement = network.host_states.options[int(arcs.option[arc])].placement
            stages.append(PlacedStage(stop=int(arcs.stop[arc]), placement=placement, opens=opens))
        else:
            opens = bool(arcs.opened_hosts[arc] > 0)
    return assemble(network.costs, network.variant, tuple(stages))
