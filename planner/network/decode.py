"""Paths through the stage network as plans."""

from collections.abc import Iterable

from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.plan import Plan
from stagecut.planner.network.arrangement import Assembly, PlacedStage
from stagecut.planner.network.stage_network import StageNetwork


def decode_path(network: StageNetwork, path: Ints) -> Plan | None:
    """The plan of a path, see :func:`decode_paths`."""
    (plan,) = decode_paths(network, [path])
    return plan


def decode_paths(network: StageNetwork, paths: Iterable[Ints]) -> list[Plan | None]:
    """The plans of paths, given as arcs from source to sink; None if one opens more hosts of a class than there are.

    Without positions there is also no plan if a stage does not fit in memory at the position it turns out to have.
    """
    arcs, options, assembly = network.arcs, network.host_states.options, Assembly(network.costs, network.variant)

    def plan_of_path(path: Ints) -> Plan | None:
        stages, opens = [], False
        columns = (arcs.option[path], arcs.stop[path], arcs.opened_hosts[path])
        for option, stop, opened in zip(*(column.tolist() for column in columns), strict=True):
            if option >= 0:
                stages.append(PlacedStage(stop=stop, placement=options[option].placement, opens=opens))
            else:
                opens = opened > 0
        return assembly.plan(tuple(stages))

    return [plan_of_path(path) for path in paths]
