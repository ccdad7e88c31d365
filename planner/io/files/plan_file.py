"""Plan files: a plan with everything needed to run and to check it."""

import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from stagecut import __version__
from stagecut.planner.core.model import Layer
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.share import Share
from stagecut.planner.io.documents.canonical import Tree, sha256_of
from stagecut.planner.io.documents.records import from_entry, tree_of
from stagecut.planner.io.documents.tree import Document, read_document
from stagecut.planner.io.documents.validate import validate
from stagecut.planner.io.files import cluster, job, profile
from stagecut.planner.io.files.plan_checks import check_plan
from stagecut.planner.io.files.plan_entry import InputsEntry, PlanFileEntry, StageEntry
from stagecut.planner.io.files.plan_statements import Certificate, OptionValue, Prediction, Provenance
from stagecut.planner.io.files.sharding_entry import sharding_of, sharding_tree

OF_WORKERS = (
    "plan.synchronisation: must be 'all-reduce' here, got a plan of virtual workers that train through waves (wsp); "
    "plan simulate, explain and check take those"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """Contents of a plan file."""

    problem: Problem
    plan: Plan
    predicted: Prediction
    certificate: Certificate
    provenance: Provenance


def provenance_of(problem: Problem, options: dict[str, OptionValue], *, seed: int) -> Provenance:
    """Provenance of a plan made here and now."""
    return Provenance(
        versions=tuple(sorted(installed_versions().items())),
        options=tuple(sorted(options.items())),
        seed=seed,
        input_hashes=tuple(sorted(input_hashes(problem).items())),
    )


def installed_versions() -> dict[str, str]:
    """Versions of stagecut, Python and the libraries that affect a result, found without importing them."""
    found = {"stagecut": __version__, "python": platform.python_version()}
    for library in ("numpy", "highspy"):
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            found[library] = "not installed"
    return found


def input_hashes(problem: Problem) -> dict[str, str]:
    """SHA-256 of each input's canonical JSON, by the name of the input."""
    return {name: sha256_of(tree) for name, tree in input_trees(problem).items()}


def read_plan_file(path: str | Path) -> PlanFile:
    """Read a plan file and check that its parts are consistent; raises a BadInputError with every fault of the file.

    Predictions and hashes are taken as they are; `plan check` recomputes them.
    """
    return plan_file_of(read_document(path))


def plan_file_of(document: Document) -> PlanFile:
    """The plan file in a document; raises the same errors as :func:`read_plan_file`."""
    complaints = document.complaints
    if is_of_workers(document):
        node = document.root.at("plan", "synchronisation") or document.root
        complaints.stop(node.line, OF_WORKERS)
    entry = validate(document, PlanFileEntry, kind="plan")
    check_inputs(document)
    problem = complaints.finish(entry, lambda sound: problem_of(sound.inputs))
    checked = complaints.checked(entry)
    check_plan(checked, document, problem)
    return complaints.finish(checked, lambda sound: _plan_file(sound, problem))


def is_of_workers(document: Document) -> bool:
    """Whether a document is a plan of virtual workers, or tries to be."""
    word = document.root.at("plan", "synchronisation")
    return (word is not None and word.value == "wsp") or "workers" in document.root.keys("plan")


def check_inputs(document: Document) -> None:
    """Check what a schema cannot express in the inputs of a plan file."""
    checks = (("profile", profile.check_profile), ("cluster", cluster.check_cluster), ("job", job.check_job))
    for name, check in checks:
        if (node := document.root.at("inputs", name)) is not None:
            check(node, document.complaints)


def to_tree(plan_file: PlanFile) -> Tree:
    """The tree of a plan file; :func:`stagecut.planner.io.documents.canonical.format_json` gives its text."""
    return {
        "schema": 1,
        "inputs": input_trees(plan_file.problem),
        "plan": _plan_tree(plan_file.plan, plan_file.problem),
        "predicted": tree_of(plan_file.predicted),
        "certificate": tree_of(plan_file.certificate),
        "provenance": tree_of(plan_file.provenance),
    }


def problem_of(inputs: InputsEntry) -> Problem:
    """The problem in checked inputs."""
    model = profile.build_profile(inputs.profile)
    return Problem(
        model=model,
        cluster=cluster.build_cluster(inputs.cluster),
        job=job.build_job(inputs.job, default_precision=model.precision),
    )


def input_trees(problem: Problem) -> dict[str, Tree]:
    """The inputs as a plan file holds them; operators only matter where the job allows to divide them."""
    return {
        "profile": profile.to_tree(problem.model, operators=problem.job.sharding is not None),
        "cluster": cluster.to_tree(problem.cluster),
        "job": job.to_tree(problem.job),
    }


def _plan_file(entry: PlanFileEntry, problem: Problem) -> PlanFile:
    share = Share(num_pipelines=len(entry.plan.pipelines), host_splits=tuple(entry.plan.host_splits))
    pipelines = tuple(
        Pipeline(stages=tuple(_stage_of(stage, problem) for stage in pipeline.stages))
        for pipeline in entry.plan.pipelines
    )
    plan = from_entry(Plan, entry.plan, share=share, pipelines=pipelines)
    return from_entry(PlanFile, entry, problem=problem, plan=plan)


def _stage_of(entry: StageEntry, problem: Problem) -> Stage:
    layers, stated = problem.model.layers[entry.start : entry.stop], entry.sharding
    sharding = None if stated is None else sharding_of(stated, layers, start=entry.start)
    return from_entry(Stage, entry, sharding=sharding)


def _plan_tree(plan: Plan, problem: Problem) -> Tree:
    unsliced = () if plan.num_sliced else ("num_sliced",)
    return tree_of(plan, without=("share", "pipelines", *unsliced)) | {
        "synchronisation": "all-reduce",
        "host_splits": list(plan.share.host_splits),
        "pipelines": [
            {"stages": [_stage_tree(stage, problem.model.layers) for stage in pipeline.stages]}
            for pipeline in plan.pipelines
        ],
    }


def _stage_tree(stage: Stage, layers: tuple[Layer, ...]) -> Tree:
    own = layers[stage.start : stage.stop]
    tree = tree_of(stage, without=("sharding",)) | {"first_layer": own[0].name, "last_layer": own[-1].name}
    if stage.sharding is not None:
        tree["sharding"] = sharding_tree(stage.sharding, own, start=stage.start)
    unsized = {key for key in ("forward_message", "backward_message") if tree[key] is None}
    return {key: value for key, value in tree.items() if key not in unsized}
