"""Plan files: a plan with everything needed to run it and to check it."""

import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from stagecut import __version__
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.share import Share
from stagecut.planner.io.documents.canonical import Tree, number_or_unlimited, sha256_of
from stagecut.planner.io.documents.fields import limit_of
from stagecut.planner.io.documents.tree import Document, read_document
from stagecut.planner.io.documents.validate import validate
from stagecut.planner.io.files import cluster, job, profile
from stagecut.planner.io.files.plan_checks import PlanChecks
from stagecut.planner.io.files.plan_entry import (
    CertificateEntry,
    PlanEntry,
    PlanFileEntry,
    PredictionEntry,
    ProvenanceEntry,
    StageEntry,
)

OptionValue = bool | int | float | str | None
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePrediction:
    """What the planner expects of one stage, per micro-batch and on each of its devices."""

    forward_s: float
    backward_s: float
    """Recomputation included."""
    transfer_s: float
    """To the next stage, one way; 0 for the last stage."""
    sync_s: float
    update_s: float
    memory_bytes: float
    """High-water mark."""
    limit_bytes: float
    """Memory of the device; infinity means unlimited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Times and memory that the planner expects."""

    iteration_s: float
    stages: tuple[StagePrediction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How good the plan is, and who says so."""

    status: Status
    """Optimal, feasible or interrupted: the others come without a plan."""
    solver: str
    objective_s: float
    bound_s: float | None = None
    gap: float | None = None
    seconds: float | None = None
    """Of the search; None where the file must not depend on the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a plan comes from; every table in order of its names."""

    versions: Pairs
    options: tuple[tuple[str, OptionValue], ...]
    seed: int
    input_hashes: Pairs
    """As :func:`input_hashes` gave them when the plan was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """All that a plan file holds."""

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
    """Versions of stagecut, python and the libraries that decide a result; nothing is imported for it."""
    found = {"stagecut": __version__, "python": platform.python_version()}
    for library in ("numpy", "highspy"):
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            found[library] = "not installed"
    return found


def input_hashes(problem: Problem) -> dict[str, str]:
    """SHA-256 of each input's canonical JSON, by the name of the input."""
    return {name: sha256_of(tree) for name, tree in _input_trees(problem).items()}


def read_plan_file(path: str | Path) -> PlanFile:
    """Read a plan file, and check that its parts fit together.

    The predicted numbers and the hashes are taken as they are; `plan check` recomputes them.

    Raises
    ------
    BadInputError
        With every fault of the file.
    """
    return plan_file_of(read_document(path))


def plan_file_of(document: Document) -> PlanFile:
    """The plan file that a document holds.

    Raises
    ------
    BadInputError
        With every fault of the file.
    """
    root, complaints = document.root, document.complaints
    entry = validate(document, PlanFileEntry, kind="plan")
    checks = (("profile", profile.check_profile), ("cluster", cluster.check_cluster), ("job", job.check_job))
    for name, check in checks:
        if (node := root.at("inputs", name)) is not None:
            check(node, complaints)
    problem = complaints.finish(entry, _problem)
    checked = complaints.checked(entry)
    PlanChecks(checked, document, problem).run()
    return complaints.finish(checked, lambda sound: _plan_file(sound, problem))


def to_tree(plan_file: PlanFile) -> Tree:
    """A plan file as it is written; :func:`planner.io.documents.canonical.format_json` gives its text."""
    return {
        "schema": 1,
        "inputs": _input_trees(plan_file.problem),
        "plan": _plan_tree(plan_file.plan, plan_file.problem),
        "predicted": _prediction_tree(plan_file.predicted),
        "certificate": _certificate_tree(plan_file.certificate),
        "provenance": {
            "versions": dict(plan_file.provenance.versions),
            "options": dict(plan_file.provenance.options),
            "seed": plan_file.provenance.seed,
            "input_hashes": dict(plan_file.provenance.input_hashes),
        },
    }


def _problem(entry: PlanFileEntry) -> Problem:
    model = profile.build_profile(entry.inputs.profile)
    return Problem(
        model=model,
        cluster=cluster.build_cluster(entry.inputs.cluster),
        job=job.build_job(entry.inputs.job, default_precision=model.precision),
    )


def _plan_file(entry: PlanFileEntry, problem: Problem) -> PlanFile:
    return PlanFile(
        problem=problem,
        plan=_plan(entry.plan),
        predicted=_prediction(entry.predicted),
        certificate=_certificate(entry.certificate),
        provenance=_provenance(entry.provenance),
    )


def _plan(entry: PlanEntry) -> Plan:
    return Plan(
        schedule=entry.schedule,
        micro_batch=entry.micro_batch,
        num_microbatches=entry.num_microbatches,
        pipelines=tuple(
            Pipeline(stages=tuple(_stage(stage) for stage in pipeline.stages)) for pipeline in entry.pipelines
        ),
        share=Share(num_pipelines=len(entry.pipelines), host_splits=tuple(entry.host_splits)),
        chunks=entry.chunks,
        num_sliced=entry.num_sliced,
    )


def _stage(entry: StageEntry) -> Stage:
    return Stage(
        start=entry.start,
        stop=entry.stop,
        devices=tuple(entry.devices),
        replicas=entry.replicas,
        tensor_parallel=entry.tensor_parallel,
        recompute=entry.recompute,
        warmup_depth=entry.warmup_depth,
        forward_micro_batch=entry.forward_micro_batch,
        backward_micro_batch=entry.backward_micro_batch,
    )


def _prediction(entry: PredictionEntry) -> Prediction:
    return Prediction(
        iteration_s=entry.iteration_s,
        stages=tuple(
            StagePrediction(
                forward_s=stage.forward_s,
                backward_s=stage.backward_s,
                transfer_s=stage.transfer_s,
                sync_s=stage.sync_s,
                update_s=stage.update_s,
                memory_bytes=stage.memory_bytes,
                limit_bytes=limit_of(stage.limit_bytes),
            )
            for stage in entry.stages
        ),
    )


def _certificate(entry: CertificateEntry) -> Certificate:
    return Certificate(
        status=Status(entry.status),
        solver=entry.solver,
        objective_s=entry.objective_s,
        bound_s=entry.bound_s,
        gap=entry.gap,
        seconds=entry.seconds,
    )


def _provenance(entry: ProvenanceEntry) -> Provenance:
    hashes = entry.input_hashes
    return Provenance(
        versions=tuple(sorted(entry.versions.items())),
        options=tuple(sorted(entry.options.items())),
        seed=entry.seed,
        input_hashes=(("cluster", hashes.cluster), ("job", hashes.job), ("profile", hashes.profile)),
    )


def _input_trees(problem: Problem) -> dict[str, Tree]:
    return {
        "profile": profile.to_tree(problem.model),
        "cluster": cluster.to_tree(problem.cluster),
        "job": job.to_tree(problem.job),
    }


def _plan_tree(plan: Plan, problem: Problem) -> Tree:
    names = [layer.name for layer in problem.model.layers]
    return {
        "schedule": str(plan.schedule),
        "synchronisation": "all-reduce",
        "micro_batch": plan.micro_batch,
        "num_microbatches": plan.num_microbatches,
        "host_splits": list(plan.share.host_splits),
        "chunks": plan.chunks,
        **({"num_sliced": plan.num_sliced} if plan.num_sliced else {}),
        "pipelines": [
            {"stages": [_stage_tree(stage, names) for stage in pipeline.stages]} for pipeline in plan.pipelines
        ],
    }


def _stage_tree(stage: Stage, names: list[str]) -> Tree:
    return {
        "start": stage.start,
        "stop": stage.stop,
        "first_layer": names[stage.start],
        "last_layer": names[stage.stop - 1],
        "devices": list(stage.devices),
        "replicas": stage.replicas,
        "tensor_parallel": stage.tensor_parallel,
        "recompute": stage.recompute,
        "forward_micro_batch": stage.forward_micro_batch,
        "backward_micro_batch": stage.backward_micro_batch,
        "warmup_depth": stage.warmup_depth,
    }


def _prediction_tree(predicted: Prediction) -> Tree:
    return {
        "iteration_s": float(predicted.iteration_s),
        "stages": [
            {
                "forward_s": float(stage.forward_s),
                "backward_s": float(stage.backward_s),
                "transfer_s": float(stage.transfer_s),
                "sync_s": float(stage.sync_s),
                "update_s": float(stage.update_s),
                "memory_bytes": float(stage.memory_bytes),
                "limit_bytes": number_or_unlimited(stage.limit_bytes),
            }
            for stage in predicted.stages
        ],
    }


def _certificate_tree(certificate: Certificate) -> Tree:
    return {
        "status": str(certificate.status),
        "solver": certificate.solver,
        "objective_s": float(certificate.objective_s),
        "bound_s": _float_or_none(certificate.bound_s),
        "gap": _float_or_none(certificate.gap),
        "seconds": _float_or_none(certificate.seconds),
    }


def _float_or_none(value: float | None) -> float | None:
    return None if value is None else float(value)
