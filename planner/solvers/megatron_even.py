"""Equal blocks on equal device groups: what is set by hand for Megatron-LM.

Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
SC 2021: pipeline, tensor and data parallelism of uniform degrees p, t and d over all n devices,

    p t d = n,    t at most the devices of a server,    blocks of the model / p on every stage,

under 1F1B, or with v chunks of blocks / (p v) on every device under the interleaved schedule of that
paper. A block is a transformer block; the embedding goes with the first, the head with the last.
There is no objective and no planner: people choose p, t, d and the micro-batch size by rules of thumb
or by trying. Here all of them are tried, and the simulator picks.

Approximated here: d is any product of identical pipelines and replicas of a stage, whichever the job
allows. Where p does not divide the number of blocks Megatron-LM refuses; here some stages have one
block more. In a model without attention parts every layer is a block. Device groups follow each
other in the cluster's order, so t lies inside a server, and a server is full before the next one is
begun; on servers of different devices that is what happens to people who do not tell these apart.
Interleaved plans take all devices too, and exist where all of these are alike. Recomputation is the
job's choice.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from planner.core.errors import UnsupportedError
from planner.core.model import ModelProfile
from planner.core.plan import Plan
from planner.core.problem import Problem, Variant
from planner.core.result import OwnObjective, Result
from planner.core.schedule import Schedule
from planner.cost.cost_model import CostModel
from planner.network.layout import Block, assemble
from planner.network.seating import Seat
from planner.simulator.bounds import lower_bound
from planner.solvers.interleaved_shapes import interleaved_plan, shapes_of
from planner.solvers.search import Search
from planner.solvers.uniform_cluster import Group, uniform_cluster

SCHEDULES = (Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED)


def solve(problem: Problem, search: Search) -> Result:
    """The fastest uniform plan; proves nothing.

    Raises
    ------
    UnsupportedError
        If the job allows no schedule of Megatron-LM, or the cluster's servers differ in size.
    """
    if not set(SCHEDULES) & set(problem.job.schedules):
        raise UnsupportedError(
            f"solver 'megatron-even': Megatron-LM knows the schedules {' and '.join(SCHEDULES)} only; "
            f"the job allows {', '.join(problem.job.schedules)}"
        )
    starts = block_starts(problem.model)
    variants = [variant for variant in problem.variants if variant.schedule in SCHEDULES]
    offer_by_bound(search, plans_of_variants(search, variants, lambda costs, variant: _plans(costs, variant, starts)))
    return search.result("megatron-even", proves=False)


def block_starts(model: ModelProfile) -> tuple[int, ...]:
    """First layer of every block: each attention part begins one, and without any, each layer.

    What comes before the first attention part, or an embedding, is of the first block; what comes
    after the last one, or a head, is of the last.
    """
    kinds = [layer.kind for layer in model.layers]
    starts = [index for index, kind in enumerate(kinds) if kind == "attention"]
    if not starts:
        starts = [index for index, kind in enumerate(kinds) if kind not in ("embedding", "head")]
    return (0, *starts[1:])


def plans_of_variants(
    search: Search, variants: Iterable[Variant], plans_of: Callable[[CostModel, Variant], Iterable[Plan]]
) -> list[Plan]:
    """Uniform plans of all variants, while the budget lasts.

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
    costs: CostModel, variant: Variant, degrees: Iterable[int], *, solver: str
) -> Iterator[tuple[Seat, ...]]:
    """Every uniform way to make all devices of a pipeline into equal groups, one for each stage.

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
    cluster, job = uniform_cluster(costs, solver), costs.problem.job
    for degree in degrees:
        for replicas in range(1, variant.micro_batch + 1):
            group = Group(replicas=replicas, tensor_parallel=degree)
            num_stages, rest = divmod(cluster.num_devices, group.num_devices)
            if rest or not _fits_servers(group, cluster.devices_per_server):
                continue
            seats = cluster.seats([group] * num_stages) if job.allows_replicas(replicas, variant.micro_batch) else None
            if seats is not None:
                yield seats


def offer_by_bound(
    search: Search, plans: Sequence[Plan], own_objective: Callable[[Plan], OwnObjective] | None = None
) -> None:
    """Simulate plans in the order of their lower bounds, while these are below the best time."""
    bounded = sorted(
        (lower_bound(search.costs.plan(plan), any_slicing=True), index) for index, plan in enumerate(plans)
    )
    for bound_s, index in bounded:
        if bound_s >= search.best_s or (search.best_plan is not None and search.out_of_budget):
            break
        if own_objective is None:
            search.offer([plans[index]])
        else:
            search.offer_with(plans[index], own_objective(plans[index]))


def _fits_servers(group: Group, devices_per_server: int) -> bool:
    """Part of a server or whole servers, and every replica inside one."""
    whole = group.num_devices <= devices_per_server or group.num_devices % devices_per_server == 0
    return whole and devices_per_server % group.tensor_parallel == 0


def _plans(costs: CostModel, variant: Variant, starts: Sequence[int]) -> Iterator[Plan]:
    interleaved = variant.schedule is Schedule.INTERLEAVED
    for plan in (_interleaved_plans if interleaved else _plain_plans)(costs, variant, starts):
        if plan is not None:
            yield plan


def _plain_plans(costs: CostModel, variant: Variant, starts: Sequence[int]) -> Iterator[Plan | None]:
    degrees = costs.problem.tensor_parallel_degrees
    for seats in seats_over_all_devices(costs, variant, degrees, solver="megatron-even"):
        if len(seats) <= len(starts):
            stops = _even_stops(costs.problem.model, starts, len(seats))
            blocks = zip(stops, seats, strict=True)
            layout = tuple(Block(stop=stop, placement=seat.placement, opens=seat.opens) for stop, seat in blocks)
            yield assemble(costs, variant, layout)


def _interleaved_plans(costs: CostModel, variant: Variant, starts: Sequence[int]) -> Iterator[Plan | None]:
    for shape in shapes_of(costs, variant):
        num_devices = shape.num_groups * shape.placement.replicas * shape.placement.tensor_parallel
        if num_devices == costs.cluster.num_devices and shape.num_stages <= len(starts):
            yield interleaved_plan(costs, shape, _even_stops(costs.problem.model, starts, shape.num_stages))


def _even_stops(model: ModelProfile, starts: Sequence[int], num_stages: int) -> list[int]:
    """First layer after each stage, block counts equal up to one."""
    ends = (*starts, model.num_layers)
    return [ends[stage * len(starts) // num_stages] for stage in range(1, num_stages + 1)]
