"""Paths through the stage network as plans."""

from collections.abc import Sequence

from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.plan import Plan
from stagecut.planner.network.arrangement import Assembly
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.network.stage_network import StageNetwork


def decode_path(network: StageNetwork, path: Ints) -> Plan | None:
    """The plan of a path, see :func:`decode_paths`."""
    (plan,) = decode_paths(network, [path])
    return plan


def decode_paths(network: StageNetwork, paths: Sequence[Ints]) -> list[Plan | None]:
    """The plans of paths, given as arcs from source to sink; None if one opens more hosts of a class than there are.

    Without positions there is also no plan if a stage does not fit in memory at the position it turns out to have.
    """
    arcs, assembly = network.arcs, Assembly(network.costs, network.variant)
    alike: dict[bytes, list[int]] = {}
    for number, path in enumerate(paths):
        alike.setdefault(arcs.option[path].tobytes() + arcs.opened_hosts[path].tobytes(), []).append(number)
    plans: list[Plan | None] = [None] * len(paths)
    for numbers in alike.values():
        is_stage, groups = arcs.option[paths[numbers[0]]] >= 0, _groups_of(network, paths[numbers[0]])
        cuts = [arcs.stop[paths[number][is_stage]].tolist() for number in numbers]
        for number, plan in zip(numbers, assembly.plans(groups, cuts), strict=True):
            plans[number] = plan
    return plans


def _groups_of(network: StageNetwork, path: Ints) -> list[PlacedGroup]:
    """The device groups of the stages of a path."""
    arcs, options = network.arcs, network.host_states.options
    groups, opens = [], False
    for option, opened in zip(arcs.option[path].tolist(), arcs.opened_hosts[path].tolist(), strict=True):
        if option >= 0:
            groups.append(PlacedGroup(placement=options[option].placement, opens=opens))
        else:
            opens = opened > 0
    return groups
