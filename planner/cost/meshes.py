"""The meshes of the devices that share a replica of a stage.

An axis is either inside hosts, on the fabric of an island, or between hosts, on their interfaces and the network; those
between hosts come first. All rings of an axis run at once, those of the stage's other replicas included.
"""

import itertools
import math
from collections.abc import Iterator

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.share import WHOLE, Share
from stagecut.planner.cost.collectives import exchange_of
from stagecut.planner.cost.links import link_between_hosts
from stagecut.planner.sharding.mesh import MAX_AXES, Mesh, MeshAxis


def meshes_of(
    cluster: Cluster, placement: Placement, share: Share = WHOLE, *, max_axes: int = MAX_AXES
) -> tuple[Mesh, ...]:
    """All meshes of a replica's `tensor_parallel` devices, fewest axes first.

    Axes between hosts are in rising order, and so are those inside: all have the same link, so in another order only
    the parts of parts would differ. A single device has the mesh without axes.

    `cluster` is one pipeline's share. A replica has a part of one host, or whole hosts.
    """
    num_hosts, per_host = _extent(placement)
    found = (
        (between, inside)
        for between, inside in itertools.product(_factorizations(num_hosts), _factorizations(per_host))
        if len(between) + len(inside) <= max_axes
    )
    by_size = sorted(found, key=lambda sizes: (len(sizes[0]) + len(sizes[1]), sizes))
    return tuple(_mesh(cluster, placement, share, between, inside) for between, inside in by_size)


def mesh_of(cluster: Cluster, placement: Placement, sizes: tuple[int, ...], share: Share = WHOLE) -> Mesh:
    """The mesh of a replica's devices with axes of these sizes, in any order that keeps those between hosts first.

    Raises
    ------
    BadInputError
        If the sizes do not multiply to the devices of a replica, or an axis is neither inside hosts nor between them.
    """
    num_hosts, per_host = _extent(placement)
    devices = num_hosts * per_host
    shown = "x".join(map(str, sizes))
    require(math.prod(sizes) == devices, "mesh", "sizes", f"a grid of {devices} devices", shown)
    cuts = [cut for cut in range(len(sizes) + 1) if math.prod(sizes[:cut]) == num_hosts]
    rule = f"axes between {num_hosts} hosts, then axes of the {per_host} devices in each"
    require(len(cuts) > 0, "mesh", "sizes", rule, shown)
    return _mesh(cluster, placement, share, sizes[: cuts[0]], sizes[cuts[0] :])


def _extent(placement: Placement) -> tuple[int, int]:
    """Hosts of a replica, and its devices on each."""
    degree, per_host = placement.tensor_parallel, placement.devices_per_host
    whole = max(degree, per_host) % min(degree, per_host) == 0
    require(whole, "mesh", "devices", f"a part of the {per_host} on a host, or all of several hosts", degree)
    return (1, degree) if degree <= per_host else (degree // per_host, per_host)


def _factorizations(number: int, least: int = 2) -> Iterator[tuple[int, ...]]:
    """Ways to write a number as a product of rising factors of at least 2."""
    if number == 1:
        yield ()
    for factor in range(least, math.isqrt(number) + 1):
        if number % factor == 0:
            yield from ((factor, *rest) for rest in _factorizations(number // factor, factor))
    if number >= least:
        yield (number,)


def _mesh(
    cluster: Cluster, placement: Placement, share: Share, between: tuple[int, ...], inside: tuple[int, ...]
) -> Mesh:
    axes = [_axis_between_hosts(cluster, placement, size) for size in between]
    axes += [_axis_inside(cluster, placement, share, size) for size in inside]
    return Mesh(axes=tuple(axes))


def _axis_between_hosts(cluster: Cluster, placement: Placement, size: int) -> MeshAxis:
    """Each device of a host is in a ring of its own: all of them share its interface and its paths."""
    own = placement.server_class
    link = link_between_hosts(cluster, (own, 1), (own, 1)).scaled(over=placement.devices_per_host)
    return MeshAxis(size=size, link=link, between_hosts=True)


def _axis_inside(cluster: Cluster, placement: Placement, share: Share, size: int) -> MeshAxis:
    """Groups along the axis exchange like replicas that share the stage by as many devices."""
    replicas = placement.devices_per_host * placement.num_hosts // size
    groups = Placement(
        server_class=placement.server_class,
        island=placement.island,
        num_hosts=placement.num_hosts,
        replicas=replicas,
        tensor_parallel=size,
    )
    exchange = exchange_of(cluster, groups, share)
    return MeshAxis(size=size, link=exchange.link, all_reduce=exchange.measured)
