"""How fast actions and messages run: as fast as possible, or as slow as a plan's devices."""

from stagecut.executor.schedule.messages import Message


class Pace:
    """Notified of everything that takes time, and free to make it take longer. This one runs at full speed."""

    def start(self) -> None:
        """A step begins."""

    def begin(self) -> None:
        """Work begins: an action whose inputs have arrived, a gradient synchronisation or an optimizer step."""

    def finish(self, kind: str, stage: int, num_samples: int) -> None:
        """The work is done: an action on `num_samples` samples (over all replicas), "sync" or "update"."""

    def sent(self, message: Message) -> None:
        """A message leaves."""

    def received(self, message: Message) -> None:
        """A message has arrived; it may be used when this returns."""
