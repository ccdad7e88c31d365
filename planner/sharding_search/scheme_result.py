"""What a search for shardings found and proved."""

from collections.abc import Callable
from dataclasses import dataclass

from stagecut.planner.core.result import InternalFault, Status, StopCause, relative_gap
from stagecut.planner.sharding_search.case import ShardingCase
from stagecut.planner.sharding_search.sharding_costs import ShardingCosts
from stagecut.planner.sharding_search.sharding_graph import Sharding


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """A sharding that was found, with every number computed anew."""

    name: str
    """Of the expert scheme, or of the method."""
    case: ShardingCase
    sharding: Sharding
    costs: ShardingCosts

    @property
    def fits(self) -> bool:
        """Whether a device has the memory."""
        return self.costs.memory_bytes <= self.case.device.memory_bytes


SchemeObserver = Callable[[Scheme], None]
"""Called with every improvement under a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemeResult:
    """What a search over meshes found and proved."""

    status: Status
    seconds: float
    schemes: tuple[Scheme, ...]
    """The best of every name, fastest first, those that do not fit last."""
    bound_s: float | None = None
    """No sharding of the space on any of the meshes takes less; None if the method proves nothing. An expert scheme can
    be outside the space, if it fits only with its working memory as it is and not as the next level."""
    overflow: str | None = None
    """Why nothing fits."""
    stopped_by: StopCause | None = None
    fault: InternalFault | None = None

    @property
    def best(self) -> Scheme | None:
        """The fastest scheme that fits."""
        return next((scheme for scheme in self.schemes if scheme.fits), None)

    @property
    def gap(self) -> float | None:
        """(time - bound) / time."""
        return relative_gap(None if self.best is None else self.best.costs.iteration_s, self.bound_s)
