"""Values that must be unique within a file."""

from collections.abc import Iterable

from stagecut.planner.io.documents.complaints import Complaints
from stagecut.planner.io.documents.tree import Node


def complain_of_repetitions(complaints: Complaints, nodes: Iterable[Node | None], what: str) -> None:
    """Complain about every text or number that an earlier node already has, naming the line of the first."""
    seen: dict[object, Node] = {}
    for node in nodes:
        if node is None or not isinstance(node.value, int | str):
            continue
        first = seen.setdefault(node.value, node)
        if first is not node:
            complaints.add(node.line, node.where, f"{what} {node.shown} appears twice, first on line {first.line}")
