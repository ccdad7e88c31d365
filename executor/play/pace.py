"""How fast actions and messages are: as fast as they can, or as slow as a plan's devices."""

from typing import Protocol

from stagecut.executor.play.messages import Message


class Pace(Protocol):
    """Told of everything that is to take time, and free to make it take longer."""

    def start(self) -> None:
        """A step begins."""
        ...

    def begin(self) -> None:
        """Work begins: the inputs of an action are there, or the gradient synchronisation or the update is next."""
        ...

    def finish(self, kind: str, stage: int, num_samples: int) -> None:
        """That work is done: an action on so many samples (over all replicas), "sync" or "update"."""
        ...

    def sent(self, message: Message) -> None:
        """A message leaves."""
        ...

    def received(self, message: Message) -> None:
        """A message has come, and may be used when this returns."""
        ...


class FullSpeed:
    """The clock as it is."""

    def start(self) -> None:
        """See :class:`Pace`."""

    def begin(self) -> None:
        """See :class:`Pace`."""

    def finish(self, kind: str, stage: int, num_samples: int) -> None:
        """See :class:`Pace`."""

    def sent(self, message: Message) -> None:
        """See :class:`Pace`."""

    def received(self, message: Message) -> None:
        """See :class:`Pace`."""
