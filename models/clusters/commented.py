"""Cluster files with comments that say where their figures come from, and what to measure."""

from collections.abc import Iterator

from stagecut.models.clusters.catalogue import CATALOGUE
from stagecut.planner.core.catalogue import NamedLink
from stagecut.planner.core.cluster import Cluster, DeviceType, Link
from stagecut.planner.core.messages.visible import visible
from stagecut.planner.core.units import GIB, format_seconds
from stagecut.planner.io.files.cluster_text import cluster_text
from stagecut.planner.report.labels import bandwidth_label

ADVICE = """\
# Figures behind the names are peaks of data sheets and assumptions, listed below with their sources. A device type
# defined here under the same name wins over that of the catalogue; instead of its name, a link may state
# {bandwidth_bytes_per_s: 12e9, latency_s: 10e-6, source: measured}.
# To measure, on the machines:
#   plan doctor --devices                  names of the devices, and their memory
#   plan profile links -o measured.json    a cluster file with measured links, memory bandwidths and peak rates
#   plan profile model MODEL -o model.json --device-type TYPE    times of a model on one of the types
"""


def commented_text(cluster: Cluster, *, origin: str) -> str:
    """The text of a cluster file; `origin` says in the first line what it was made from."""
    legend = "".join(f"#   {line}\n" for line in _legend(cluster))
    return f"# {visible(origin)}\n#\n{ADVICE}#\n# The names:\n{legend}{cluster_text(cluster, CATALOGUE)}"


def cluster_links(cluster: Cluster) -> tuple[Link, ...]:
    """All links of a cluster: fabrics, bridges, interfaces, network."""
    servers = cluster.servers
    fabrics = (island.fabric for server in servers for island in server.islands)
    bridges = (server.bridge for server in servers if server.bridge is not None)
    nics = (server.nic for server in servers)
    return (*fabrics, *bridges, *nics, cluster.network, *(override.link for override in cluster.overrides))


def _legend(cluster: Cluster) -> Iterator[str]:
    yield from (_type_line(kind) for kind in cluster.device_types if kind in CATALOGUE.device_types)
    used = set(cluster_links(cluster))
    yield from (_link_line(named) for named in CATALOGUE.links if named.link in used)


def _type_line(kind: DeviceType) -> str:
    peaks = ", ".join(f"{precision} {flops / 1e12:g}" for precision, flops in kind.peak_flops_per_s)
    memory = f"{kind.memory_bytes / GIB:g} GiB at {bandwidth_label(kind.memory_bandwidth_bytes_per_s)}"
    return f"{kind.name}: {peaks} TFLOP/s, {memory}. {kind.source}"


def _link_line(named: NamedLink) -> str:
    figures = f"{bandwidth_label(named.link.bandwidth_bytes_per_s)}, {format_seconds(named.link.latency_s)}"
    return f"{named.name}: {figures}. {named.link.source}"
