"""Arcs of a stage network as columns."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Arcs:
    """Columns over A arcs, each of shape (A,). A transfer arc has start = stop = its boundary."""

    tail: Ints
    head: Ints
    start: Ints
    stop: Ints
    least_position: Ints
    """Fewest stages to come at the tail: its own position for a stage arc, the receiver's for a transfer."""
    largest_position: Ints
    """Most of them; as many where the network has positions."""
    option: Ints
    """Index into `HostStates.options`; for a transfer, -1 minus the index into `HostStates.entries`."""
    recompute: Bools
    forward_s: Floats
    first_s: Floats
    """Least time of the first part of a micro-batch in a stage or transfer: the whole micro-batch or, where the
    job may slice it, one half. The last stage counts whole: its backward waits for both halves."""
    backward_s: Floats
    halving_s: Floats
    """What halved forwards surely add to the work of a stage: n (2 H - F), with n stated by the job and H half a
    forward."""
    transfer_s: Floats
    """One way; 0 for a stage arc."""
    tail_s: Floats
    """Gradient all-reduce and optimizer step."""
    sync_s: Floats
    """The all-reduce alone, part of `tail_s`."""
    opened_class: Ints
    """Server class whose hosts a transfer opens; -1 for none."""
    opened_hosts: Ints

    def take(self, chosen: Bools | Ints) -> "Arcs":
        """The chosen arcs, or the numbered ones in that order, repetitions included."""
        return replace(self, **{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    def by_tail(self) -> tuple["Arcs", Ints]:
        """The arcs in the order in which loops take them, one after the other in memory, and the numbers they had."""
        numbers = np.argsort(self.tail, kind="stable")
        return self.take(numbers), numbers

    @property
    def entry(self) -> Ints:
        """Index into `HostStates.entries` of where a transfer leads; negative for a stage."""
        return -1 - self.option

    @property
    def is_stage(self) -> Bools:
        """Which arcs are stages."""
        return self.option >= 0

    def __len__(self) -> int:
        return len(self.tail)


def arcs_over(start: Ints, stop: Ints) -> Arcs:
    """Arcs with only their layers filled in."""
    size = len(start)
    none, nothing = np.zeros(size, dtype=np.int64), np.zeros(size)
    columns: dict[str, NDArray[Any]] = {
        field.name: nothing if field.name.endswith("_s") else none for field in fields(Arcs)
    }
    columns |= {"start": start, "stop": stop, "recompute": none > 0, "opened_class": none - 1}
    return Arcs(**columns)


def join_arcs(parts: list[Arcs]) -> Arcs:
    """All arcs of the parts, in order."""
    parts = parts or [arcs_over(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))]
    return Arcs(**{field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Arcs)})
