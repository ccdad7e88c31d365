"""The option that states prices."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from stagecut.planner.cli.parameters.groups import option
from stagecut.planner.cli.parameters.types import prices
from stagecut.planner.core.prices import with_prices
from stagecut.planner.core.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceOptions:
    """Prices from the command line."""

    HEADING: ClassVar[str] = "Prices"

    prices: Mapping[str, float] | None = option(
        "--price-per-hour",
        type=prices,
        metavar="NAME=PRICE,...",
        help="Price per hour of one device of a device type, or of one whole server, in any currency; for the price "
        "of a million tokens or samples.  [default: price_per_hour of the cluster file]",
    )

    def priced(self, problem: Problem) -> Problem:
        """The problem with these prices; raises a BadInputError for a name that its cluster does not have."""
        return replace(problem, cluster=with_prices(problem.cluster, self.prices)) if self.prices else problem
