"""Answers as JSON trees, and choices read back from a file."""

import json
from collections.abc import Sequence
from pathlib import Path

from stagecut.planner.choice_graphs.result import ChoiceResult
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.io.documents.canonical import TreeValue
from stagecut.planner.io.documents.input_file import read_text


def answer_tree(result: ChoiceResult) -> dict[str, TreeValue]:
    """What was found and proven; whole numbers are written in full, however large."""
    return {
        "status": str(result.status),
        "objective": result.objective,
        "bound": None if result.overflow is not None else result.bound,
        "gap": result.gap,
        "seconds": result.seconds,
        "peak_usage": result.peak_usage,
        "reason": result.overflow,
        "choices": None if result.choices is None else list(result.choices),
    }


def read_answer(path: Path) -> tuple[list[int], int | None, int | None]:
    """Choices, stated objective and stated bound of an answer; of a list of choices, as the contest has it, no more.

    Raises
    ------
    BadInputError
        If the file is neither.
    """
    try:
        tree = json.loads(read_text(path))
    except ValueError as fault:
        raise BadInputError(f"{path}: not JSON: {fault}") from None
    if isinstance(tree, list):
        tree = {"choices": tree}
    if not isinstance(tree, dict) or not isinstance(tree.get("choices"), list):
        raise BadInputError(f"{path}: choices: a list of whole numbers is needed, the option of every node")
    choices = [_whole(path, f"choices[{node}]", choice) for node, choice in enumerate(tree["choices"])]
    return choices, _stated(path, tree, "objective"), _stated(path, tree, "bound")


def differences(*, cost: int, objective: int | None, bound: int | None) -> Sequence[str]:
    """What a file states about its choices and does not hold."""
    found = []
    if objective is not None and objective != cost:
        found.append(f"objective: the file says {objective}, but the choices cost {cost}")
    if bound is not None and bound > cost:
        found.append(f"bound: the file says {bound}, but the choices cost {cost}, which is less")
    return found


def _stated(path: Path, tree: dict[str, object], key: str) -> int | None:
    value = tree.get(key)
    return None if value is None else _whole(path, key, value)


def _whole(path: Path, place: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadInputError(f"{path}: {place}: got {json.dumps(value)[:40]}, a whole number is needed")
    return value
