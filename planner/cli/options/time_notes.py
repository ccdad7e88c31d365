"""Notes on the times that a problem rests on."""

from stagecut.planner.cli.process.notes import note
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.units import format_seconds
from stagecut.planner.cost.time_basis import Basis, TimeBasis, time_basis
from stagecut.planner.io.documents.complaints import nearest
from stagecut.planner.io.readers.slow_times import MINUTES_S, slow_times_note
from stagecut.planner.report.labels import counted_label

MILLISECONDS = "if the profile's times are in milliseconds: plan convert PROFILE --time-unit ms -o FILE"


def note_times(problem: Problem) -> None:
    """Say which measured times are unused, which device types lack them, and whether their unit looks wrong."""
    basis = time_basis(problem)
    for name, count in basis.unused:
        note(_unused(name, count, basis, problem))
    if any(layer.times for layer in problem.model.layers):
        for name in basis.on(Basis.ESTIMATED):
            note(_without_times(name, basis, problem))
        for name in basis.on(Basis.BOTH):
            missing = sum(layer.table(name) is None for layer in problem.model.layers)
            layers = counted_label(missing, "layer")
            note(f"profile: no times on {name!r} for {layers} of {problem.model.num_layers}, which are estimated")
    slow = slow_times_note(problem.model, dict(basis.by_device_type))
    if slow:
        note(f"profile: {slow}; {MILLISECONDS}")


def note_long_iteration(problem: Problem, iteration_s: float | None) -> None:
    """Say that the unit of measured times looks wrong where an iteration takes minutes."""
    if iteration_s is None or iteration_s < MINUTES_S or time_basis(problem).basis is Basis.ESTIMATED:
        return
    note(f"profile: an iteration takes {format_seconds(iteration_s)} by its times; {MILLISECONDS}")


def _unused(name: str, count: int, basis: TimeBasis, problem: Problem) -> str:
    known = [own for own, _ in basis.by_device_type]
    layers = counted_label(count, "layer")
    devices = f"cluster {problem.cluster.name!r} has {', '.join(map(repr, known))}"
    hint = nearest(name, [own for own in known if own not in basis.on(Basis.MEASURED)])
    return f"profile: times on {name!r} are not used ({layers}): {devices}{hint}"


def _without_times(name: str, basis: TimeBasis, problem: Problem) -> str:
    measured = basis.on(Basis.MEASURED)
    against = f", beside times measured on {', '.join(map(repr, measured))}" if measured else ""
    fix = "measure them (plan profile --add-to), or use the same name in profile and cluster"
    return (
        f"profile: NO TIMES ON {name!r}: all {problem.model.num_layers} layers of {problem.model.name!r} are estimated "
        f"from its data sheet{against}; {fix}"
    )
