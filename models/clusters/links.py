"""Links.

Bandwidths are the vendors', per direction, without losses to protocols and software. All latencies are assumptions. A
single interface represents the network of a host: in servers with several, the rail that serves a pair of devices.
Devices on PCI Express share one root complex: an assumption, write `shared: false` in a cluster file where they do not.
"""

from stagecut.models.clusters.figures import rows
from stagecut.planner.core.catalogue import LinkUse, NamedLink
from stagecut.planner.core.cluster import Link
from stagecut.planner.core.messages.names import unknown_name
from stagecut.planner.core.units import GB, US


def _named(row: dict[str, str]) -> NamedLink:
    latency_us, source = float(row["latency_us"]), row["source"]
    link = Link(
        bandwidth_bytes_per_s=float(row["gb_per_s"]) * GB,
        latency_s=latency_us * US,
        source=f"{source}; assumption: {latency_us:g} us latency" if latency_us else source,
    )
    return NamedLink(name=row["name"], link=link, use=LinkUse(row["use"]), shared=row["shared"] == "yes")


LINKS = tuple(map(_named, rows("links")))


def named_link(name: str) -> NamedLink:
    """The link of that name; raises a BadInputError, with the nearest names, if there is none."""
    for each in LINKS:
        if each.name == name:
            return each
    raise unknown_name("link", name, [each.name for each in LINKS])


def link(name: str) -> Link:
    """The figures of that link; raises the error of :func:`named_link`."""
    return named_link(name).link


SWITCH = link("switch")
"""The network between the hosts of every cluster of the catalogue."""
