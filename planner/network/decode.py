"""A path through the stage network as a plan."""

from collections.abc import Iterable

from stagecut.planner.core.plan import Plan
from stagecut.planner.network.layout import Block, Layout, assemble
from stagecut.planner.network.stage_network import StageNetwork


def decode_path(network: StageNetwork, path: Iterable[int]) -> Plan | None:
    """The plan of a path; None if it opens more hosts of a class than there are.

    A path of a network without positions may also have a stage that does not fit in memory at its
    position: there is no plan then either.

    Parameters
    ----------
    path
        Arcs from source to sink, in order.
    """
    return assemble(network.costs, network.variant, layout_of_path(network, path))


def layout_of_path(network: StageNetwork, path: Iterable[int]) -> Layout:
    """The stages of a path with their placements."""
    arcs, blocks, opens = network.arcs, [], False
    for arc in path:
        if arcs.is_stage[arc]:
            blocks.append(Block(stop=int(arcs.stop[arc]), placement=network.placement(arc), opens=opens))
        else:
            opens = bool(arcs.opened_hosts[arc] > 0)
    return tuple(blocks)
