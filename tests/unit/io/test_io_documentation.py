"""docs/files.md says what the readers do."""

import json
import re
from pathlib import Path

import pytest

from stagecut.models.clusters.catalogue import CATALOGUE
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.files.cluster import cluster_of
from stagecut.planner.io.files.job import job_of
from stagecut.planner.io.files.profile import profile_of
from stagecut.planner.io.files.schema import json_schema

TEXT = (Path(__file__).parents[3] / "docs" / "files.md").read_text()
SECTIONS = {
    kind: TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    for kind, title in (
        ("profile", "Model profile"),
        ("cluster", "Cluster"),
        ("job", "Job"),
        ("plan", "Plan"),
        ("workers", "Plan of virtual workers"),
    )
}


def example(kind, *, below=""):
    text = SECTIONS[kind].partition(below)[2] if below else SECTIONS[kind]
    return re.search(r"^```(?:yaml|json)\n(.*?)^```", text, re.MULTILINE | re.DOTALL).group(1)


@pytest.mark.parametrize(("kind", "reader"), [("profile", profile_of), ("cluster", cluster_of), ("job", job_of)])
def test_example_is_read(kind, reader):
    reader(parse_document(example(kind), file=kind))


def test_example_with_names_of_the_catalogue_is_read():
    text = example("cluster", below="### Names of the catalogue")
    assert cluster_of(parse_document(text, file="cluster"), CATALOGUE).num_devices == 20


@pytest.mark.parametrize("kind", ["profile", "cluster", "job"])
def test_every_key_is_explained(kind):
    schema = json_schema(kind)
    keys = {key for part in (schema, *schema["$defs"].values()) for key in part.get("properties", ())}
    assert {key for key in keys if not re.search(rf"\b{key}\b", SECTIONS[kind])} == set()


def test_plan_example_has_the_keys_of_the_schema():
    shown = json.loads(example("plan"))
    parts = {
        "PlanFileEntry": shown,
        "StageEntry": shown["plan"]["pipelines"][0]["stages"][0],
        "PlanEntry": shown["plan"],
        "PredictionEntry": shown["predicted"],
        "StagePredictionEntry": shown["predicted"]["stages"][0],
        "CertificateEntry": shown["certificate"],
        "ProvenanceEntry": shown["provenance"],
        "InputsEntry": shown["inputs"],
    }
    assert keys_of(parts) == keys_in_schema(parts)


def test_example_of_a_plan_of_workers_has_the_keys_of_the_schema():
    shown = json.loads(example("workers"))
    (worker,), (predicted,) = shown["plan"]["workers"], shown["predicted"]["workers"]
    parts = {
        "WavePlanFileEntry": shown,
        "WavePlanEntry": shown["plan"],
        "VirtualWorkerEntry": worker,
        "WorkerStageEntry": worker["stages"][0],
        "WavePredictionEntry": shown["predicted"],
        "WorkerPredictionEntry": predicted,
        "WaveStagePredictionEntry": predicted["stages"][0],
        "WaveCertificateEntry": shown["certificate"],
    }
    assert keys_of(parts) == keys_in_schema(parts)


def keys_of(parts):
    return {name: set(part) for name, part in parts.items()}


def keys_in_schema(names):
    definitions = json_schema("plan")["$defs"]
    return {name: set(definitions[name]["properties"]) for name in names}
