"""All devices of a pipeline in equal groups, one for each stage: what is set by hand for training frameworks."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from planner.core.errors import UnsupportedError
from planner.core.plan import Plan
from planner.core.problem import Variant
from planner.cost.cost_model import CostModel
from planner.network.seating import Seat
from planner.solvers.search import Search
from planner.solvers.uniform_cluster import uniform_cluster


def plans_of_variants(
    search: Search, variants: Iterable[Variant], plans_of: Callable[[CostModel, Variant], Iterable[Plan]]
) -> list[Plan]:
    """Plans of all variants, while the budget lasts.

    Raises
    ------
    UnsupportedError
        If no share of the cluster has servers of one size; such shares alone are passed over.
    """
    plans, refusals, num_variants = list[Plan](), list[UnsupportedError](), 0
    for variant in variants:
        if search.out_of_budget:
            break
        num_variants += 1
        try:
            plans.extend(plans_of(search.costs.of(variant.share), variant))
        except UnsupportedError as refusal:
            refusals.append(refusal)
    if refusals and len(refusals) == num_variants:
        raise refusals[0]
    return plans


def seats_over_all_devices(
    costs: CostModel, variant: Variant, degrees: Sequence[int], *, solver: str
) -> Iterator[tuple[Seat, ...]]:
    """Every way to make all devices of a pipeline into equal groups, one for each stage.

    Parameters
    ----------
    costs
        Of the variant's share.
    degrees
        Of tensor parallelism, t.
    solver
        Name of the planner, for the message.

    Raises
    ------
    UnsupportedError
        See :func:`planner.solvers.uniform_cluster.uniform_cluster`.
    """
    cluster = uniform_cluster(costs, solver)
    for group in cluster.groups(variant.micro_batch):
        num_stages, rest = divmod(cluster.num_devices, group.num_devices)
        if rest or group.tensor_parallel not in degrees:
            continue
        seats = cluster.seats([group] * num_stages)
        if seats is not None:
            yield seats
