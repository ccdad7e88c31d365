"""How long a stage waits, by cause."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import NamedTuple


class WaveSpan(NamedTuple):
    """One forward, backward or update of a stage; seconds of `time.monotonic`."""

    kind: str
    """An :class:`stagecut.planner.simulator.action_lists.Op`, or "update"."""
    minibatch: int
    ready_s: float
    """When the stage became free for it."""
    start_s: float
    """When its inputs had arrived, and its gate was passed."""
    end_s: float


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
