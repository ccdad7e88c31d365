"""Names in cluster files: of device types, servers and links, defined in the file itself or in the catalogue."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from stagecut.planner.core.catalogue import Catalogue, NamedLink
from stagecut.planner.io.documents.complaints import Complaints, nearest
from stagecut.planner.io.documents.records import tree_of
from stagecut.planner.io.documents.tree import Document, Node, node_of

LINK_KEYS = ("fabric", "nic", "bridge", "network")
"""Keys whose value is a link."""
Links = Mapping[str, NamedLink]


def with_figures(document: Document, catalogue: Catalogue) -> Document:
    """The document with figures in place of the catalogue's names: of links, and of types that it does not define."""
    root = _with_links(document.root, {named.name: named for named in catalogue.links})
    return replace(document, root=_with_types(root, catalogue))


def check_names(root: Node, complaints: Complaints, catalogue: Catalogue) -> None:
    """Complain about names of device types, servers and links that neither the file nor the catalogue knows."""
    servers, links = _names(root.items("servers")), [named.name for named in catalogue.links]
    types = [*_names(root.items("device_types")), *(kind.name for kind in catalogue.device_types)]
    what = "one of this cluster's device types" + (", nor of `plan clusters types`" if catalogue.device_types else "")
    for island in _islands(root):
        _check(island.at("device_type"), types, what, complaints)
    for override in root.items("overrides"):
        for end in override.items("servers"):
            _check(end, servers, "one of this cluster's servers", complaints)
        if isinstance(override.value, Mapping) and not {"link", "bandwidth_bytes_per_s"} & override.value.keys():
            where = (*override.where, "bandwidth_bytes_per_s")
            complaints.add(override.line, where, "is missing, must be bytes per second or 'unlimited', or name a link")
    what = "one of `plan clusters links`" if links else "known here, where links are given by their figures"
    for link in _links(root):
        _check(link, links, what, complaints)


def _with_links(node: Node, links: Links, key: str = "") -> Node:
    """A node, and all below it, with the figures of links."""
    if key in LINK_KEYS and (named := links.get(_text(node))) is not None:
        return replace(node, value=_figures(named, node))
    if isinstance(node.value, tuple):
        return replace(node, value=tuple(_with_links(child, links) for child in node.value))
    if not isinstance(node.value, Mapping):
        return node
    children = {name: _with_links(child, links, name) for name, child in node.value.items()}
    return replace(node, value={**_implied(node, links), **children})


def _implied(node: Node, links: Links) -> Mapping[str, Node]:
    """What the name of a link in a mapping implies: whether a fabric is shared, or the figures of an override."""
    if (fabric := node.at("fabric")) is not None and (named := links.get(_text(fabric))) is not None:
        return {"shared": node_of(named.shared, line=fabric.line, where=(*node.where, "shared"))}
    if (link := node.at("link")) is not None and (named := links.get(_text(link))) is not None:
        # Figures of the file's own do not come from the source of the catalogue's.
        changed = bool({"bandwidth_bytes_per_s", "latency_s", "table"} & set(node.keys()))
        return {key: child for key, child in _figures(named, node).items() if not changed or key != "source"}
    return {}


def _figures(named: NamedLink, node: Node) -> Mapping[str, Node]:
    tree = tree_of(named.link, omit_empty=True)
    return {key: node_of(value, line=node.line, where=(*node.where, key)) for key, value in tree.items()}


def _with_types(root: Node, catalogue: Catalogue) -> Node:
    """The root with the device types of the catalogue that islands name and the file does not define."""
    own, kinds = root.at("device_types"), {kind.name: kind for kind in catalogue.device_types}
    if not isinstance(root.value, Mapping) or (own is not None and not isinstance(own.value, tuple)):
        return root
    defined = root.items("device_types")
    used = dict.fromkeys(_text(island.at("device_type")) for island in _islands(root))
    added = [kinds[name] for name in used if name in kinds and name not in _names(defined)]
    if not added:
        return root
    head = root if own is None else own
    nodes = [
        node_of(tree_of(kind), line=head.line, where=("device_types", index))
        for index, kind in enumerate(added, start=len(defined))
    ]
    types = Node(line=head.line, where=("device_types",), value=(*defined, *nodes))
    return replace(root, value={**root.value, "device_types": types})


def _islands(root: Node) -> list[Node]:
    return [island for server in root.items("servers") for island in server.items("islands")]


def _links(root: Node) -> Iterator[Node | None]:
    yield root.at("network")
    yield from (override.at("link") for override in root.items("overrides"))
    yield from (server.at(key) for server in root.items("servers") for key in ("nic", "bridge"))
    yield from (island.at("fabric") for island in _islands(root))


def _names(nodes: Sequence[Node]) -> list[str]:
    return [name for node in nodes if (name := _text(node.at("name")))]


def _text(node: Node | None) -> str:
    """The text of a node; empty if it is anything else."""
    return node.value if node is not None and isinstance(node.value, str) else ""


def _check(node: Node | None, known: Sequence[str], what: str, complaints: Complaints) -> None:
    if node is not None and isinstance(node.value, str) and node.value not in known:
        hint = nearest(node.value, known) or (f", known: {', '.join(known[:20])}" if known else "")
        complaints.add(node.line, node.where, f"{node.shown} is not {what}{hint}")
