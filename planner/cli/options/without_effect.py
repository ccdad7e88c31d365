"""Options and entries of a job file that have no effect, each said in one note."""

from collections.abc import Collection
from dataclasses import fields

from stagecut.planner.cli.parameters.groups import flags_given
from stagecut.planner.cli.process.notes import note
from stagecut.planner.core.job import Job
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule, can_slice
from stagecut.planner.solvers.registry import PROVING

_PROGRAMS = frozenset({"milp", "textbook-milp", "textbook-milp-cbc", "hetpipe", "autopipe-h"})
"""Solvers that run a mixed-integer program."""
USED_BY: dict[str, frozenset[str]] = {
    "seed": _PROGRAMS | {"annealing", "umpipe"},
    "threads": _PROGRAMS,
    "jobs": frozenset({"milp"}),
    "rows": frozenset({"milp", "dp"}),
    "gap": PROVING,
}
"""Options of a search, by field, and the solvers that read them."""


def note_unused_by(solvers: Collection[str]) -> None:
    """Name the options on the command line that none of the solvers uses."""
    unused = [name for name, users in USED_BY.items() if not users & set(solvers)]
    if flags := flags_given(unused):
        note(f"{flags}: no effect with {'solver' if len(solvers) == 1 else 'solvers'} {', '.join(solvers)}")


def note_overridden(choices: object, read: Job) -> None:
    """Name the entries of a job file that the command line replaces by something else."""
    stated = [field.name for field in fields(Job) if getattr(read, field.name) != field.default]
    given = ((name, getattr(choices, name, None), getattr(read, name)) for name in stated)
    replaced = [name for name, value, old in given if value is not None and _plain(value) != _plain(old)]
    if flags := flags_given(replaced):
        note(f"job file: overridden by {flags}")


def note_unable(problem: Problem) -> None:
    """Name what the job lists or asks for that no combination of its choices can use."""
    job, variants = problem.job, problem.variants + problem.unequal_variants
    if job.waves is not None:
        return
    unused = set(job.schedules) - {variant.schedule for variant in variants}
    _note_unused("schedule", [each for each in job.schedules if each in unused])
    if job.micro_batches != Job.__dataclass_fields__["micro_batches"].default and not job.unequal:
        used = {variant.micro_batch for variant in variants}
        _note_unused("micro-batch", [size for size in job.micro_batches if size not in used])
    numbers = {variant.share.num_pipelines for variant in variants}
    _note_unused("pipelines", [number for number in job.pipelines or () if number not in numbers])
    if job.slice != 0 and not any(can_slice(each.schedule, each.micro_batch) for each in variants):
        note("job: slice has no effect: only even micro-batches can be halved, and not under interleaved")
    if job.slice == 0 and flags_given(("action_overhead_s",)):
        note("'--action-overhead': no effect without --slice")
    if Schedule.INTERLEAVED not in job.schedules and job.chunks != Job.__dataclass_fields__["chunks"].default:
        note("job: chunks has no effect: schedule interleaved is not allowed")


def _note_unused(what: str, values: Collection[object]) -> None:
    if values:
        listed = ", ".join(map(str, values))
        note(f"job: {what} {listed} has no effect: it does not divide global batch and cluster equally")


def _plain(value: object) -> object:
    """A value of the command line as the job has it: None stands for auto, and an optimizer for its name."""
    if value == ():
        return None
    sizes = getattr(value, "sizes", None)
    return sizes if sizes is not None else getattr(value, "name", value)
