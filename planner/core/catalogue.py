"""Device types and links that cluster files may refer to by name."""

from dataclasses import dataclass
from enum import StrEnum

from stagecut.planner.core.cluster import DeviceType, Link


class LinkUse(StrEnum):
    """What a link of the catalogue connects."""

    FABRIC = "fabric"
    """Devices of one host."""
    INTERFACE = "interface"
    """A host and the network."""
    NETWORK = "network"
    """The interfaces of hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLink:
    """A link with a name."""

    name: str
    link: Link
    use: LinkUse
    shared: bool = False
    """Whether all devices queue for it, as for a root complex; of fabrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """What has a name."""

    device_types: tuple[DeviceType, ...] = ()
    links: tuple[NamedLink, ...] = ()


NO_CATALOGUE = Catalogue()
"""For files that state every figure, such as plan files."""
