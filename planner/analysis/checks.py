"""Statements of a plan file of either kind that differ, contradict each other, or are taken on trust."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from stagecut.planner.core.numerics.tolerances import EQUAL_TIMES, RECOMPUTED
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.io.documents.canonical import TreeValue
from stagecut.planner.io.files.plan_file import input_hashes
from stagecut.planner.io.files.plan_statements import Certificate, Provenance
from stagecut.planner.io.files.wave_statements import WaveCertificate

Value = float | str | None
BOUNDS = frozenset({"certificate.bound_s", "certificate.bound_samples_per_s"})
"""Statements that only a search can prove."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchecked:
    """A statement of the file that nothing else in it confirms."""

    where: str
    """Its place in the file."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One number or hash of a plan file, as stated and as derived."""

    where: str
    """Its place in the file, for example `predicted.iteration_s`."""
    stated: Value
    derived: Value

    @property
    def agrees(self) -> bool:
        """Whether both are the same; numbers up to rounding."""
        if isinstance(self.stated, float) and isinstance(self.derived, float):
            return math.isclose(self.stated, self.derived, rel_tol=RECOMPUTED)
        return self.stated == self.derived


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """The outcome of checking a plan file."""

    checks: tuple[Check, ...]
    faults: tuple[str, ...]
    """Rules of the search space that the plan breaks, and claims of the certificate that no search could make."""
    simulated: float
    """As simulated now: the iteration time in seconds, or of virtual workers the samples per second."""
    unchecked: tuple[Unchecked, ...]

    @property
    def differences(self) -> tuple[Check, ...]:
        """The numbers that differ."""
        return tuple(check for check in self.checks if not check.agrees)

    @property
    def agrees(self) -> bool:
        """Whether no number differs and no rule is broken."""
        return not self.differences and not self.faults


def compared(where: str, stated: TreeValue, derived: TreeValue) -> Iterator[Check]:
    """Every number of two trees of the same shape."""
    if isinstance(stated, Mapping) and isinstance(derived, Mapping):
        for key in sorted(stated):
            yield from compared(f"{where}.{key}", stated[key], derived[key])
    elif isinstance(stated, Sequence) and isinstance(derived, Sequence) and not isinstance(stated, str):
        for index, pair in enumerate(zip(stated, derived, strict=True)):
            yield from compared(f"{where}[{index}]", *pair)
    else:
        yield Check(where=where, stated=stated, derived=derived)  # type: ignore[arg-type]


def gap_check(stated: float | None, derived: float | None) -> Check:
    """The gap, the difference of two nearly equal numbers, is compared absolutely."""
    is_close = stated is not None and derived is not None and abs(derived - stated) <= RECOMPUTED
    return Check(where="certificate.gap", stated=stated, derived=stated if is_close else derived)


def hash_checks(problem: Problem, provenance: Provenance) -> Iterator[Check]:
    """The hashes of the inputs."""
    stated = dict(provenance.input_hashes)
    for name, derived in sorted(input_hashes(problem).items()):
        yield Check(where=f"provenance.input_hashes.{name}", stated=stated.get(name), derived=derived)


def status_faults(status: Status, gap: float | None, *, asked: float) -> Iterator[str]:
    """Contradictions between a status and the gaps that are left and were asked for."""
    requested = f"the requested gap is {asked:.3g}"
    is_closed = gap is not None and gap <= asked + EQUAL_TIMES
    if status is not Status.OPTIMAL and is_closed:
        yield f"certificate: status {status} with a gap of {gap:.3g}, but {requested}: that is optimal"
    if status is Status.OPTIMAL and gap is None:
        yield "certificate: status optimal without a bound"
    elif status is Status.OPTIMAL and not is_closed:
        yield f"certificate: status optimal with a gap of {gap:.3g}, but {requested}"


def unchecked(certificate: Certificate | WaveCertificate) -> Iterator[Unchecked]:
    """The statements that are taken on trust."""
    for field in fields(certificate):
        where = f"certificate.{field.name}"
        if where in BOUNDS and getattr(certificate, field.name) is not None:
            yield Unchecked(where=where, why=f"claimed by {certificate.solver}; --prove proves it again")
    if certificate.status is not Status.OPTIMAL:
        yield Unchecked(where="certificate.status", why="whether the search was interrupted or hit a limit")
    if isinstance(certificate, Certificate) and certificate.seconds is not None:
        yield Unchecked(where="certificate.seconds", why="how long the search took")
    yield Unchecked(where="provenance", why="whether versions, seed and options are those of the search")
