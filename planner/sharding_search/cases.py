"""The cases that a search goes through: every mesh of a group of devices."""

from collections.abc import Iterator

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.job import Optimizer
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.placement import Placement
from stagecut.planner.cost.meshes import mesh_of, meshes_of
from stagecut.planner.sharding_search.case import ShardingCase


def sharding_cases(
    model: ModelProfile,
    cluster: Cluster,
    *,
    optimizer: Optimizer,
    global_batch: int,
    micro_batch: int,
    server: str | None = None,
    mesh: tuple[int, ...] | None = None,
) -> tuple[ShardingCase, ...]:
    """A case for each mesh of all devices of a server class, or for one of them, fewest axes first.

    Parameters
    ----------
    server
        Name of the server class; None if there is only one.
    mesh
        Sizes of the axes, those between hosts first; None for all meshes.

    Raises
    ------
    BadInputError
        If there are several classes and none is named, if a host has several islands, if the sizes of the mesh do not
        fit the devices, or if the micro-batch does not divide the global batch.
    """
    rule = f"a divisor of the global batch {global_batch}"
    require(global_batch % micro_batch == 0, "sharding", "micro-batch", rule, micro_batch)
    placement = whole_class(cluster, server)
    device = cluster.device_type(cluster.servers[placement.server_class].islands[0].device_type)
    found = meshes_of(cluster, placement) if mesh is None else (mesh_of(cluster, placement, mesh),)
    return tuple(
        ShardingCase(
            model=model,
            device=device,
            mesh=each,
            optimizer=optimizer,
            micro_batch=micro_batch,
            num_microbatches=global_batch // micro_batch,
        )
        for each in found
    )


def whole_class(cluster: Cluster, server: str | None) -> Placement:
    """All devices of a server class, as one replica."""
    names = [each.name for each in cluster.servers]
    if server is None and len(names) > 1:
        listed = ", ".join(names)
        raise BadInputError(
            f"cluster {cluster.name!r}: a model is divided over devices of one kind, and there are several classes of "
            f"servers; name one with --server: {listed}"
        )
    require(server is None or server in names, f"cluster {cluster.name!r}", "server", f"one of {names}", server)
    number = names.index(server) if server is not None else 0
    own = cluster.servers[number]
    require(len(own.islands) == 1, f"server {own.name!r}", "islands", "one", [each.device_type for each in own.islands])
    return Placement(
        server_class=number, island=0, num_hosts=own.count, replicas=1, tensor_parallel=own.count * own.num_devices
    )


def halved_sizes(global_batch: int) -> Iterator[int]:
    """The global batch, and its halves as long as they are whole."""
    size = global_batch
    yield size
    while size % 2 == 0:
        size //= 2
        yield size
