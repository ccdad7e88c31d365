"""Cluster files."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from pydantic import Field

from stagecut.planner.core.catalogue import NO_CATALOGUE, Catalogue
from stagecut.planner.core.cluster import (
    MAX_DEVICES,
    AllReduceTable,
    Cluster,
    DeviceType,
    Island,
    Link,
    NetworkOverride,
    Server,
)
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.documents.canonical import Tree
from stagecut.planner.io.documents.complaints import Complaints
from stagecut.planner.io.documents.fields import (
    Entry,
    FileEntry,
    Fraction,
    GroupSize,
    Name,
    NonNegative,
    Positive,
    PositiveOrUnlimited,
    SmallCount,
    Text,
)
from stagecut.planner.io.documents.mirrors import mirrors
from stagecut.planner.io.documents.records import from_entry, tree_of
from stagecut.planner.io.documents.tree import Document, Node, complain_of_repetitions, read_document
from stagecut.planner.io.documents.validate import validate
from stagecut.planner.io.files.cluster_names import check_names, with_figures

LinkName = Annotated[Name, Field(description="Name of a link of the catalogue, see `plan clusters links`.")]
Point = Annotated[list[NonNegative], Field(min_length=2, max_length=2)]
"""Bytes and seconds."""


class InterfaceEntry(Entry):
    """A network interface: seconds = latency_s + bytes / bandwidth_bytes_per_s."""

    bandwidth_bytes_per_s: PositiveOrUnlimited
    """Bytes per second in each direction, or the word unlimited."""
    latency_s: NonNegative = 0.0
    """Additional seconds per message."""
    source: Text = ""
    """Source of the figures."""


class LinkEntry(InterfaceEntry):
    """A link, given by bandwidth and latency or by measurements."""

    table: Annotated[list[Point], Field(min_length=1)] | None = None
    """Measured [bytes, seconds] of one message from end to end, in increasing order; overrides the figures."""


class OverrideEntry(LinkEntry):
    """The network between two server classes, in place of the default: figures, or the name of a link."""

    link: LinkName | None = None
    """Name of a link of the catalogue; figures beside it win."""
    bandwidth_bytes_per_s: PositiveOrUnlimited | None = None  # type: ignore[assignment]
    """Bytes per second in each direction, or the word unlimited; required without a name."""
    servers: Annotated[list[Name], Field(min_length=2, max_length=2)]
    """Names of the two classes; the same name twice means between hosts of that class."""


@mirrors(DeviceType)
class DeviceTypeEntry(Entry):
    """A kind of GPU (or CPU)."""

    peak_flops_per_s: dict[Annotated[Precision, Field(strict=False)], Positive] = Field(default_factory=dict)
    memory_bytes: PositiveOrUnlimited
    memory_bandwidth_bytes_per_s: PositiveOrUnlimited = "unlimited"
    efficiency: Fraction = 1.0
    source: Text = ""


@mirrors(Island)
class IslandEntry(Entry):
    """Identical devices inside one server behind one fabric."""

    count: SmallCount
    fabric: LinkEntry | LinkName | None = None
    shared: bool | None = None
    """True: one root complex that all transfers queue for. False: a switch, with a separate path for each pair. Null:
    what the catalogue says of the fabric's name; false for a fabric without one."""
    all_reduce: dict[GroupSize, Annotated[list[Point], Field(min_length=2)]] = Field(default_factory=dict)
    """Measured [bytes per device, seconds] of an all-reduce, in increasing order, by number of devices."""


@mirrors(Server)
class ServerEntry(Entry):
    """A class of identical hosts, each with one network interface."""

    count: SmallCount = 1
    islands: Annotated[list[IslandEntry], Field(min_length=1)]
    nic: InterfaceEntry | LinkName | None = None
    bridge: LinkEntry | LinkName | None = None


@mirrors(Cluster)
class ClusterFile(FileEntry):
    """Servers, their devices and the links between them."""

    device_types: Annotated[list[DeviceTypeEntry], Field(min_length=1)] = Field(default_factory=list)
    """Kinds of devices in the servers; those of the catalogue, see `plan clusters types`, need not be stated."""
    servers: Annotated[list[ServerEntry], Field(min_length=1)]
    network: LinkEntry | LinkName | None = None
    overrides: list[OverrideEntry] = Field(default_factory=list)


def read_cluster(path: str | Path, catalogue: Catalogue = NO_CATALOGUE) -> Cluster:
    """Read a cluster, which may name what is in the catalogue; raises a BadInputError with every fault of the file."""
    return cluster_of(read_document(path), catalogue)


def cluster_of(document: Document, catalogue: Catalogue = NO_CATALOGUE) -> Cluster:
    """The cluster in a document; raises the errors of :func:`read_cluster`."""
    stated = with_figures(document, catalogue)
    entry = validate(stated, ClusterFile, kind="cluster")
    check_cluster(stated.root, stated.complaints, catalogue)
    return stated.complaints.finish(entry, build_cluster)


def check_cluster(root: Node, complaints: Complaints, catalogue: Catalogue = NO_CATALOGUE) -> None:
    """Check what a schema cannot express: unique and known names, ordered tables, the number of devices."""
    types, servers = root.items("device_types"), root.items("servers")
    complain_of_repetitions(complaints, (kind.at("name") for kind in types), "device type name")
    complain_of_repetitions(complaints, (server.at("name") for server in servers), "server name")
    check_names(root, complaints, catalogue)
    pairs: dict[frozenset[object], Node] = {}
    for override in root.items("overrides"):
        ends = override.items("servers")
        first = pairs.setdefault(frozenset(end.value for end in ends if isinstance(end.value, str)), override)
        if first is not override:
            complaints.add(override.line, override.where, f"repeats the pair of servers on line {first.line}")
    for table in _tables(root):
        _check_order(table, complaints)
    _check_size(root, complaints)


def build_cluster(entry: ClusterFile) -> Cluster:
    """The core data of a checked entry."""
    return from_entry(
        Cluster,
        entry,
        servers=tuple(
            from_entry(Server, server, islands=tuple(map(_island, server.islands))) for server in entry.servers
        ),
        overrides=tuple(
            NetworkOverride(servers=(override.servers[0], override.servers[1]), link=from_entry(Link, override))
            for override in entry.overrides
        ),
    )


def to_tree(cluster: Cluster) -> Tree:
    """A cluster as a file holds it."""
    tree = {"schema": 1, **tree_of(cluster, without=("servers", "overrides"), omit_empty=True)}
    tree["servers"] = [
        {**tree_of(server, without=("islands",), omit_empty=True), "islands": [*map(_island_tree, server.islands)]}
        for server in cluster.servers
    ]
    if cluster.overrides:
        tree["overrides"] = [
            {"servers": list(override.servers), **tree_of(override.link, omit_empty=True)}
            for override in cluster.overrides
        ]
    return tree


def _tables(root: Node) -> Iterator[Node]:
    servers = root.items("servers")
    islands = [island for server in servers for island in server.items("islands")]
    links = [root.at("network"), *root.items("overrides"), *(server.at("bridge") for server in servers)]
    links += [island.at("fabric") for island in islands]
    tables = [link.at("table") for link in links if link is not None]
    tables += [island.at("all_reduce", number) for island in islands for number in island.keys("all_reduce")]
    return (table for table in tables if table is not None)


def _check_size(root: Node, complaints: Complaints) -> None:
    """Keep a typo from creating more device names than fit in memory."""
    num_devices = sum(
        _count(server) * sum(_count(island) for island in server.items("islands")) for server in root.items("servers")
    )
    node = root.at("servers")
    if node is not None and num_devices > MAX_DEVICES:
        complaints.add(node.line, node.where, f"must have at most {MAX_DEVICES} devices in total, got {num_devices}")


def _count(node: Node) -> int:
    count = node.at("count")
    return count.value if count is not None and isinstance(count.value, int) else 1


def _island(entry: IslandEntry) -> Island:
    tables = sorted((int(number), points) for number, points in entry.all_reduce.items())
    all_reduce = (
        AllReduceTable(num_devices=number, table=tuple((size, seconds) for size, seconds in points))
        for number, points in tables
    )
    return from_entry(Island, entry, all_reduce=tuple(all_reduce))


def _island_tree(island: Island) -> Tree:
    tree = tree_of(island, without=("all_reduce",), omit_empty=True)
    if island.all_reduce:
        tree["all_reduce"] = {str(table.num_devices): tree_of(table)["table"] for table in island.all_reduce}
    return tree


def _check_order(table: Node, complaints: Complaints) -> None:
    """Complain about points whose bytes do not increase or whose seconds decrease."""
    for before, after in pairwise(table.items()):
        (last_bytes, last_s), (num_bytes, seconds) = _numbers(before), _numbers(after)
        if last_bytes is not None and num_bytes is not None and num_bytes <= last_bytes:
            complaints.add(after.line, after.where, f"bytes must increase, got {num_bytes:g} after {last_bytes:g}")
        elif last_s is not None and seconds is not None and seconds < last_s:
            complaints.add(after.line, after.where, f"seconds must not decrease, got {seconds:g} after {last_s:g}")


def _numbers(point: Node) -> tuple[float | None, float | None]:
    """Bytes and seconds of a point, None for what is not a number."""
    nodes = point.at(0), point.at(1)
    first, second = (node.value if node is not None and isinstance(node.value, int | float) else None for node in nodes)
    return first, second
