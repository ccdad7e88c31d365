"""Cluster files as people write them: YAML with the names of the catalogue in place of its figures."""

import json
import re
import sys
from collections.abc import Iterator, Mapping

import yaml

from stagecut.planner.core.catalogue import Catalogue
from stagecut.planner.core.cluster import Cluster, DeviceType
from stagecut.planner.io.documents.canonical import Tree, TreeValue
from stagecut.planner.io.documents.records import tree_of
from stagecut.planner.io.files.cluster import to_tree
from stagecut.planner.io.files.cluster_names import LINK_KEYS

_PLAIN = re.compile(r"(?!(?:true|false|null)$)[a-z][a-z0-9.+-]*")
"""Text that needs no quotes."""


def cluster_text(cluster: Cluster, catalogue: Catalogue) -> str:
    """The text of a cluster file; what the catalogue does not have stays as it is.

    :func:`stagecut.planner.io.files.cluster.read_cluster` with this catalogue reads the same cluster again.
    """
    own = [tree_of(kind, omit_empty=True) for kind in _defined(cluster, catalogue)]
    tree = {**_named(to_tree(cluster), catalogue), "device_types": own}
    return "\n".join(_lines({key: value for key, value in tree.items() if value != []})) + "\n"


def _defined(cluster: Cluster, catalogue: Catalogue) -> tuple[DeviceType, ...]:
    """The types that the file has to define: those of the catalogue follow by themselves, in order of use."""
    own = tuple(kind for kind in cluster.device_types if kind not in catalogue.device_types)
    used = dict.fromkeys(island.device_type for server in cluster.servers for island in server.islands)
    known = tuple(kind for kind in map(cluster.device_type, used) if kind not in own)
    return own if (*own, *known) == cluster.device_types else cluster.device_types


def _named(tree: Tree, catalogue: Catalogue) -> dict[str, TreeValue]:
    """A mapping with names in place of its links."""
    names = {json.dumps(tree_of(named.link, omit_empty=True)): named.name for named in catalogue.links}
    return {key: _shortened(key, value, names) for key, value in tree.items()}


def _shortened(key: str, value: TreeValue, names: Mapping[str, str]) -> TreeValue:
    if key in LINK_KEYS:
        return names.get(json.dumps(value), value)
    if isinstance(value, Mapping):
        return {name: _shortened(name, child, names) for name, child in value.items()}
    return [_shortened("", each, names) for each in value] if isinstance(value, list) else value


def _lines(tree: Tree) -> Iterator[str]:
    """YAML, with lists and mappings of plain values on one line."""
    for key, value in tree.items():
        if _is_flat(value):
            yield f"{key}: {_flow(value)}"
        elif isinstance(value, Mapping):
            yield f"{key}:"
            yield from (f"  {line}" for line in _lines(value))
        elif isinstance(value, list):
            yield f"{key}:"
            for each in value:
                lines = [_flow(each)] if _is_flat(each) else _lines(each)
                yield from (f"  {'  ' if index else '- '}{line}" for index, line in enumerate(lines))


def _is_flat(value: TreeValue) -> bool:
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return not any(isinstance(child, Mapping | list) for child in children)


def _flow(value: TreeValue) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    return value if _PLAIN.fullmatch(value) else yaml.safe_dump(value, default_style='"', width=sys.maxsize).rstrip()
