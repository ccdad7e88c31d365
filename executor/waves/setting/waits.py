"""How long a stage waits, by cause."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

UPDATE, GATE = "update", "gate"
"""Kinds of span: of a local step, and of the wait at a gate."""


class WaveSpan(NamedTuple):
    """One forward, backward or update of a stage, or the wait at a gate; seconds of `time.monotonic`."""

    kind: str
    """An :class:`stagecut.planner.simulator.action_lists.Op`, `UPDATE` or `GATE`."""
    wave: int
    number: int
    """The minibatch; the wave for gates, and for updates once a wave."""
    ready_s: float
    """When the stage became free for it."""
    start_s: float
    """When its inputs had arrived, and its gate was passed; of a gate, when it was reached."""
    end_s: float


class Transfer(NamedTuple):
    """What a stage has exchanged with the other workers; seconds of `time.monotonic`."""

    kind: str
    """"push", "pull" or "all-reduce"."""
    wave: int
    """The wave pushed or summed; for pulls, that of the gate they are for."""
    partner: str
    """In words: a server, or the layers of an all-reduce."""
    start_s: float
    """When it was handed over, or asked for."""
    end_s: float
    """When it had left, or what was asked for had come: the wait for other workers is part of it."""


@dataclass(slots=True, kw_only=True)
class Waits:
    """Seconds that a stage has waited."""

    gate_s: float = 0.0
    """At gates, for the other workers' waves, their transfer included."""
    pipeline_s: float = 0.0
    """For activations and gradients of the neighbouring stages, their transfer included."""
    link_s: float = 0.0
    """Until earlier messages had left."""

    def gate(self) -> AbstractContextManager[None]:
        """A wait for other workers."""
        return self._timing("gate_s")

    def pipeline(self) -> AbstractContextManager[None]:
        """A wait for a neighbouring stage."""
        return self._timing("pipeline_s")

    def link(self) -> AbstractContextManager[None]:
        """A wait until a message has left."""
        return self._timing("link_s")

    @contextmanager
    def _timing(self, field: str) -> Iterator[None]:
        start_s = time.monotonic()
        try:
            yield
        finally:
            setattr(self, field, getattr(self, field) + time.monotonic() - start_s)
