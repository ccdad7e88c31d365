"""Descriptions.

A line of text describes any cluster: `2x4 rtx-4090 pcie4x16 eth25 + 8 a100-80 nvlink3 ib-hdr200`. `--cluster` takes it
instead of a name, and `plan clusters new` makes a cluster file of it.

- **Classes** of identical hosts are joined by `+`. Each says `HOSTSxDEVICES TYPE`, or `DEVICES TYPE` for one host.
- **Links** follow in any order: the fabric inside the host, and the interface of the host. What is left out is what is
  usual for the device type.
- **Types in one host** are separated by commas: `2x2 a100-40-pcie, 2 t4 eth100`. The slower of the fabrics joins them,
  and they share one interface, by default the slower of the usual ones.
- **Names**: hosts are called by their device types, the cluster by its description, and the network is `switch`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stagecut.models.clusters.device_types import device_type, known_type
from stagecut.models.clusters.links import LINKS, SWITCH, named_link
from stagecut.planner.core.catalogue import LinkUse, NamedLink
from stagecut.planner.core.cluster import MAX_DEVICES, Cluster, Island, Link, Server
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.messages.names import unknown_name

MAX_NAME = 100
"""Characters of a cluster's name in a file."""
FORM = "[HOSTSx]DEVICES TYPE [FABRIC] [INTERFACE], such as 2x4 rtx-4090 pcie4x16 eth25"
_START = re.compile(r"\s*[0-9]+(x[0-9]+)?(\s|$)")
_COUNTS = re.compile(r"(?:([1-9][0-9]{0,8})x)?([1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Devices of one type in a host, as described."""

    hosts: int | None
    devices: int
    kind: str
    fabric: NamedLink
    interface: NamedLink | None

    def island(self) -> Island:
        return Island(device_type=self.kind, count=self.devices, fabric=self.fabric.link, shared=self.fabric.shared)


def is_described(text: str) -> bool:
    """Whether a text is a description rather than a name: its first word is a number or two."""
    return _START.match(text) is not None


def described(text: str, *, name: str | None = None, server_names: Sequence[str] = ()) -> Cluster:
    """The cluster of a description.

    Parameters
    ----------
    name
        Name of the cluster; None: the description.
    server_names
        Names of the classes of hosts; empty: their device types.

    Raises
    ------
    BadInputError
        With a complaint about each class that is not written as above or has an unknown name.
    """
    classes, complaints = [], []
    for part in text.split("+"):
        try:
            classes.append(_class(part))
        except BadInputError as fault:
            complaints += [f"cluster {text!r}: {complaint}" for complaint in fault.complaints]
    if complaints:
        raise BadInputError(*complaints)
    _check_size(text, classes)
    kinds = dict.fromkeys(group.kind for groups in classes for group in groups)
    names = server_names or _server_names(classes)
    return Cluster(
        name=name or _short(" ".join(text.split())),
        device_types=tuple(map(device_type, kinds)),
        servers=tuple(_server(server, groups) for server, groups in zip(names, classes, strict=True)),
        network=SWITCH,
    )


def _class(text: str) -> tuple[_Group, ...]:
    groups = tuple(map(_group, text.split(",")))
    interfaces = [group.interface.name for group in groups if group.interface is not None]
    if len(interfaces) > 1:
        raise BadInputError(f"{text.strip()!r}: a host has one interface, got {' and '.join(interfaces)}")
    if any(group.hosts is not None for group in groups[1:]):
        raise BadInputError(f"{text.strip()!r}: hosts are counted once, in front, as in 2x2 a100-40-pcie, 2 t4")
    return groups


def _group(text: str) -> _Group:
    number, kind, *links = (*text.split(), "", "")
    counts = _COUNTS.fullmatch(number)
    if counts is None or not kind:
        raise BadInputError(f"{text.strip()!r} is not {FORM}")
    known, named = known_type(kind), [_link(word) for word in links if word]
    return _Group(
        hosts=int(counts[1]) if counts[1] else None,
        devices=int(counts[2]),
        kind=kind,
        fabric=_only(named, LinkUse.FABRIC, text) or named_link(known.fabric),
        interface=_only(named, LinkUse.INTERFACE, text),
    )


def _link(word: str) -> NamedLink:
    """A fabric or an interface."""
    known = {link.name: link for link in LINKS if link.use is not LinkUse.NETWORK}
    if word not in known:
        raise unknown_name("fabric or interface", word, list(known))
    return known[word]


def _only(links: Sequence[NamedLink], use: LinkUse, text: str) -> NamedLink | None:
    found = [link for link in links if link.use is use]
    if len(found) > 1:
        raise BadInputError(f"{text.strip()!r}: takes one {use}, got {' and '.join(link.name for link in found)}")
    return found[0] if found else None


def _check_size(text: str, classes: Sequence[Sequence[_Group]]) -> None:
    num_devices = sum((groups[0].hosts or 1) * group.devices for groups in classes for group in groups)
    if num_devices > MAX_DEVICES:
        raise BadInputError(f"cluster {text!r}: must have at most {MAX_DEVICES} devices in total, got {num_devices}")


def _server(name: str, groups: Sequence[_Group]) -> Server:
    stated = (group.interface.link for group in groups if group.interface is not None)
    usual = (named_link(known_type(group.kind).interface).link for group in groups)
    return Server(
        name=name,
        count=groups[0].hosts or 1,
        islands=tuple(group.island() for group in groups),
        nic=next(stated, None) or _slowest(usual),
        bridge=_slowest(group.fabric.link for group in groups) if len(groups) > 1 else None,
    )


def _slowest(links: Iterable[Link]) -> Link:
    return min(links, key=lambda link: link.bandwidth_bytes_per_s)


def _server_names(classes: Sequence[Sequence[_Group]]) -> list[str]:
    """Device types of each class, numbered from 1 where several classes have the same."""
    names = [_short("+".join(dict.fromkeys(group.kind for group in groups)), 80) for groups in classes]
    return [
        f"{name}.{names[: index + 1].count(name)}" if names.count(name) > 1 else name
        for index, name in enumerate(names)
    ]


def _short(text: str, most: int = MAX_NAME) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
