"""How fast a stage of a worker runs: as fast as possible, or as slow as a plan's device."""

from stagecut.executor.schedule.messages import Message


class WavePace:
    """Told of everything that takes time on a stage, and free to make it take longer. This one runs at full speed."""

    def begin(self) -> None:
        """Work begins: a forward or backward whose inputs have arrived, or local steps."""

    def finish(self, kind: str, count: int = 1) -> None:
        """The work is done: an :class:`stagecut.planner.simulator.action_lists.Op`, or so many updates ("update")."""

    def sent(self, message: Message) -> None:
        """A message to a neighbouring stage leaves."""

    def received(self, message: Message) -> None:
        """One has arrived; it may be used when this returns."""
