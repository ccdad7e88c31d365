"""The weights of every minibatch are checked for how many updates they lack."""

from dataclasses import dataclass, field

from stagecut.executor.ranks.failures import RunError
from stagecut.executor.waves.setting.schemes import Scheme
from stagecut.planner.core.wave_plan import VirtualWorker
from stagecut.planner.core.waves import WaveRule


class StalenessError(RunError):
    """Weights that lack more updates than the plan allows."""


@dataclass(slots=True)
class StalenessCheck:
    """Compares the weights of each minibatch of one stage with the bounds, and keeps the worst seen."""

    scheme: Scheme
    rule: WaveRule
    worker: VirtualWorker
    label: str = field(kw_only=True)
    """The rank, in words."""
    most_own: int = 0
    """Most of the worker's own earlier updates that the weights of a minibatch lacked."""
    most_missing: int = 0
    """Most earlier minibatches of another worker that the weights of a minibatch lacked, at most, by their clock."""

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
        missing = rule.num_missing(minibatch, clock)
        least_own, least_clock = minibatch - 1 - self.own_bound, rule.least_clock(minibatch)
        if own_updates < least_own or clock < least_clock or missing > rule.global_staleness:
            raise StalenessError(
                f"{self.label}: minibatch {minibatch} of wave {rule.wave_of(minibatch)} would compute with weights of "
                f"{own_updates} own updates (at least {max(0, least_own)} allowed), clock {clock} (at least "
                f"{least_clock}), {missing} minibatches of another worker missing (at most {rule.global_staleness})"
            )
        self.most_own = max(self.most_own, minibatch - 1 - own_updates)
        self.most_missing = max(self.most_missing, missing)
