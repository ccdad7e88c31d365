"""JSON Schemas of the kinds of files."""

from typing import Any

from pydantic import TypeAdapter

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.io.documents.canonical import Tree
from stagecut.planner.io.documents.complaints import nearest
from stagecut.planner.io.files.cluster import ClusterFile
from stagecut.planner.io.files.job import JobFile
from stagecut.planner.io.files.plan_entry import PlanFileEntry
from stagecut.planner.io.files.profile import ProfileFile
from stagecut.planner.io.files.run_entry import RunFile
from stagecut.planner.io.files.wave_plan_entry import WavePlanFileEntry

_ENTRIES: dict[str, TypeAdapter[Any]] = {
    "profile": TypeAdapter(ProfileFile),
    "cluster": TypeAdapter(ClusterFile),
    "job": TypeAdapter(JobFile),
    "plan": TypeAdapter(PlanFileEntry | WavePlanFileEntry),
    "run": TypeAdapter(RunFile),
}
KINDS = tuple(_ENTRIES)


def json_schema(kind: str) -> Tree:
    """JSON Schema (draft 2020-12) of one kind of file, in which every field is described with its unit.

    Raises a BadInputError if there is no such kind.
    """
    if kind not in _ENTRIES:
        raise BadInputError(f"unknown kind of file {kind!r}{nearest(kind, KINDS)}, accepted: {', '.join(KINDS)}")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}
    return {**head, **_ENTRIES[kind].json_schema()}
