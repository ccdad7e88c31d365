"""Ranks of the devices: torchrun gives every host consecutive ranks, so only some orders can be started."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice, permutations

from stagecut.planner.core.frameworks import RankOrder
from stagecut.planner.core.layer_graphs.degrees import ranked_devices
from stagecut.planner.core.operators.roles import MeshRoles
from stagecut.planner.core.plan import Plan

Copy = tuple[tuple[str, ...], ...]
"""The devices of one data-parallel copy of the model: those that share its samples, for each device group."""
MOST_ORDERS = 720
"""Orders of unlike copies that are tried: all of up to six."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRanks:
    """The consecutive ranks of one host."""

    name: str
    first_rank: int
    slots: tuple[int, ...]
    """Index of the device of each rank on its host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedDevices:
    """The devices in an order in which torchrun can start them."""

    order: RankOrder
    devices: tuple[str, ...]
    """Device of each rank."""

    @property
    def hosts(self) -> tuple[HostRanks, ...]:
        """The hosts, in the order of their ranks."""
        found, first_rank = [], 0
        for name, devices in groupby(self.devices, key=host_of):
            slots = tuple(int(device.rpartition("/")[2]) for device in devices)
            found.append(HostRanks(name=name, first_rank=first_rank, slots=slots))
            first_rank += len(slots)
        return tuple(found)


def host_of(device: str) -> str:
    """Name of a device's host."""
    return device.rpartition("/")[0]


def ranked(plan: Plan, roles: Sequence[MeshRoles], orders: Sequence[RankOrder]) -> tuple[RankedDevices, bool]:
    """The first of these orders in which the ranks of every host are consecutive, and whether there is one.

    Data-parallel copies of the model are alike, so each may be counted first; without any such order, the first one.
    `roles` are those of every stage, whose degrees are equal.
    """
    copies = _copies(plan, roles)
    for order in orders:
        for arranged in islice(_arrangements(copies), MOST_ORDERS):
            found = RankedDevices(order=order, devices=_devices(arranged, order))
            if len(found.hosts) == len({host_of(device) for device in found.devices}):
                return found, True
    return RankedDevices(order=orders[0], devices=_devices(copies, orders[0])), False


def _copies(plan: Plan, roles: Sequence[MeshRoles]) -> list[Copy]:
    size = roles[0].degrees.context * roles[0].degrees.tensor
    found: list[Copy] = []
    for pipeline in plan.pipelines:
        groups = [ranked_devices(*pair) for pair in zip(roles, pipeline.stages[: plan.num_groups], strict=False)]
        starts = range(0, len(groups[0]), size)
        found += [tuple(devices[start : start + size] for devices in groups) for start in starts]
    return found


def _arrangements(copies: Sequence[Copy]) -> Iterator[list[Copy]]:
    """The copies as they are, then with those on the same hosts together, in every order."""
    yield list(copies)
    alike: dict[tuple[str, ...], list[Copy]] = {}
    for copy in copies:
        alike.setdefault(tuple(host_of(device) for device in chain(*copy)), []).append(copy)
    for order in permutations(alike.values()):
        yield list(chain(*order))


def _devices(copies: Sequence[Copy], order: RankOrder) -> tuple[str, ...]:
    rows = zip(*copies, strict=True) if order is RankOrder.STAGES_LAST else copies
    return tuple(device for row in rows for devices in row for device in devices)
