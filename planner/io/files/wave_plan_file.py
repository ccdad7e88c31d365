"""Plan files of virtual workers that train through waves."""

from dataclasses import dataclass
from pathlib import Path

from stagecut.planner.core.plan import Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.io.documents.canonical import Tree
from stagecut.planner.io.documents.records import from_entry, tree_of
from stagecut.planner.io.documents.tree import Document, read_document
from stagecut.planner.io.documents.validate import validate
from stagecut.planner.io.files.plan_file import (
    PlanFile,
    check_inputs,
    input_trees,
    is_of_workers,
    plan_file_of,
    problem_of,
)
from stagecut.planner.io.files.plan_file import to_tree as tree_of_pipelines
from stagecut.planner.io.files.plan_statements import Provenance
from stagecut.planner.io.files.wave_plan_checks import check_wave_plan
from stagecut.planner.io.files.wave_plan_entry import (
    FROM_THE_WORKER,
    UNUSED,
    VirtualWorkerEntry,
    WavePlanFileEntry,
)
from stagecut.planner.io.files.wave_statements import WaveCertificate, WavePrediction

SCHEMA = 2
"""Version of plan files with workers; those without keep version 1, and so their bytes and hashes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WavePlanFile:
    """Contents of a plan file of virtual workers."""

    problem: Problem
    plan: WavePlan
    predicted: WavePrediction
    certificate: WaveCertificate
    provenance: Provenance


AnyPlanFile = PlanFile | WavePlanFile


def read_any_plan_file(path: str | Path) -> AnyPlanFile:
    """Read a plan file of either kind; raises a BadInputError with every fault of the file."""
    return any_plan_file_of(read_document(path))


def any_plan_file_of(document: Document) -> AnyPlanFile:
    """The plan file in a document; raises the same errors as :func:`read_any_plan_file`."""
    return wave_plan_file_of(document) if is_of_workers(document) else plan_file_of(document)


def wave_plan_file_of(document: Document) -> WavePlanFile:
    """The plan file of virtual workers in a document; raises a BadInputError with every fault of the file."""
    complaints = document.complaints
    entry = validate(document, WavePlanFileEntry, kind="plan")
    check_inputs(document)
    problem = complaints.finish(entry, lambda sound: problem_of(sound.inputs))
    checked = complaints.checked(entry)
    check_wave_plan(checked, document, problem)
    return complaints.finish(checked, lambda sound: _plan_file(sound, problem))


def to_tree(plan_file: AnyPlanFile) -> Tree:
    """The tree of a plan file of either kind."""
    if isinstance(plan_file, PlanFile):
        return tree_of_pipelines(plan_file)
    return {
        "schema": SCHEMA,
        "inputs": input_trees(plan_file.problem),
        "plan": plan_tree(plan_file.plan, plan_file.problem),
        "predicted": tree_of(plan_file.predicted),
        "certificate": tree_of(plan_file.certificate),
        "provenance": tree_of(plan_file.provenance),
    }


def plan_tree(plan: WavePlan, problem: Problem) -> Tree:
    """A plan as its file holds it."""
    names = [layer.name for layer in problem.model.layers]
    return tree_of(plan, without=("workers",)) | {
        "synchronisation": "wsp",
        "workers": [
            tree_of(worker, without=("stages",)) | {"stages": [_stage_tree(stage, names) for stage in worker.stages]}
            for worker in plan.workers
        ],
    }


def _stage_tree(stage: Stage, names: list[str]) -> Tree:
    return tree_of(stage, without=(*FROM_THE_WORKER, *UNUSED)) | {
        "device": stage.devices[0],
        "first_layer": names[stage.start],
        "last_layer": names[stage.stop - 1],
    }


def _plan_file(entry: WavePlanFileEntry, problem: Problem) -> WavePlanFile:
    plan = from_entry(WavePlan, entry.plan, workers=tuple(map(_worker, entry.plan.workers)))
    return from_entry(WavePlanFile, entry, problem=problem, plan=plan)


def _worker(entry: VirtualWorkerEntry) -> VirtualWorker:
    sizes = dict.fromkeys(FROM_THE_WORKER, entry.minibatch)
    stages = tuple(from_entry(Stage, stage, devices=(stage.device,), **sizes) for stage in entry.stages)
    return from_entry(VirtualWorker, entry, stages=stages)
