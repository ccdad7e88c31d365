"""The weights of every minibatch are checked for how many updates they lack."""

from dataclasses import dataclass, field

from stagecut.executor.ranks.failures import RunError
from stagecut.executor.waves.setting.schemes import Scheme
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker
from stagecut.planner.core.waves import WaveRule


class StalenessError(RunError):
    """Weights that lack more updates than the plan allows."""


@dataclass(slots=True)
class StalenessCheck:
    """Compares the weights of each minibatch of one stage with the bounds, and keeps the worst seen."""

    scheme: Scheme
    rule: WaveRule
    worker: VirtualWorker
    other_waves: tuple[int, ...]
    """Minibatches in a wave of each other worker, in which the updates that are missing of it are counted."""
    label: str = field(kw_only=True)
    """The rank, in words."""
    most_own: int = 0
    """Most of the worker's own earlier updates that the weights of a minibatch lacked."""
    most_missing: int = 0
    """Most earlier minibatches of another worker that the weights of a minibatch lacked, at most, by their clock."""
    most_allowed: int = field(init=False)
    """The same, of any minibatch of the plan."""

    def __post_init__(self) -> None:
        self.most_allowed = max(map(self.rule.global_staleness, self.other_waves), default=0)

    @property
    def own_bound(self) -> int:
        """Most own updates that weights may lack: N_m - 1 with a step after each minibatch."""
        if self.scheme.merge.is_step:
            return (self.rule.clock_distance + 1) * self.rule.wave - 1
        return self.worker.in_flight - 1

    def check(self, minibatch: int, *, own_updates: int, clock: int) -> None:
        """Refuse to compute a minibatch with weights that are too old.

        Raises
        ------
        StalenessError
            With worker, minibatch and clocks.
        """
        rule = self.rule
        missing = {other: rule.num_missing(minibatch, clock, other=other) for other in self.other_waves}
        too_many = [other for other, number in missing.items() if number > rule.global_staleness(other)]
        least_own, least_clock = minibatch - 1 - self.own_bound, rule.least_clock(minibatch)
        most_missing = max(missing.values(), default=0)
        if own_updates < least_own or clock < least_clock or too_many:
            raise StalenessError(
                f"{self.label}: minibatch {minibatch} of wave {rule.wave_of(minibatch)} would compute with weights of "
                f"{own_updates} own updates (at least {max(0, least_own)} allowed), clock {clock} (at least "
                f"{least_clock}), {most_missing} minibatches of another worker missing (at most {self.most_allowed})"
            )
        self.most_own = max(self.most_own, minibatch - 1 - own_updates)
        self.most_missing = max(self.most_missing, most_missing)
