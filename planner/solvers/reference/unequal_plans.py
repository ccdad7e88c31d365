"""Every plan whose processes have sublot sizes of their own: the oracle for the search over them.

Device groups are enumerated as in :mod:`stagecut.planner.solvers.reference.brute_force`; sizes and recomputation
are every combination that :func:`stagecut.planner.cost.legality.faults` has nothing against.
"""

import itertools
from collections.abc import Iterator, Sequence

from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.network.arrangement import NamedStage, plan_of
from stagecut.planner.network.device_groups import PlacedGroup, name_devices
from stagecut.planner.network.sized.plan import StageSizes, with_sizes
from stagecut.planner.solvers.reference.brute_force import Walk


def all_unequal_plans(problem: Problem, costs: CostModel) -> Iterator[Plan]:
    """Every plan with unequal micro-batches that fits in memory, up to renaming equal hosts and devices."""
    num_layers = problem.model.num_layers
    for variant in problem.unequal_variants:
        own = costs.of(variant.share)
        walk = Walk(problem=problem, cluster=own.cluster, micro_batch=variant.micro_batch)
        unopened = tuple(server.count for server in own.cluster.servers)
        for groups in walk.extensions((), unopened, None):
            for cuts in itertools.combinations(range(1, num_layers), len(groups) - 1):
                plans = _sized_plans(own, variant, groups, (*cuts, num_layers))
                yield from (plan for plan in plans if not faults(costs, plan))


def _sized_plans(
    costs: CostModel, variant: Variant, groups: Sequence[PlacedGroup], stops: Sequence[int]
) -> Iterator[Plan]:
    names = name_devices(costs.cluster, groups)
    assert names is not None
    sizes = costs.problem.job.sublot_sizes(variant.micro_batch)
    for recompute in itertools.product((False, True), repeat=len(groups)):
        stages = [
            NamedStage(start=start, stop=stop, placement=group.placement, devices=devices, recompute=again)
            for (start, stop), group, devices, again in zip(
                itertools.pairwise((0, *stops)), groups, names, recompute, strict=True
            )
        ]
        plan = plan_of(costs, variant, stages)
        for chosen in itertools.product(sizes, repeat=4 * len(groups) - 2):
            yield with_sizes(plan, _by_stage(chosen, len(groups)))


def _by_stage(chosen: Sequence[int], num_stages: int) -> list[StageSizes]:
    forward, backward = chosen[:num_stages], chosen[num_stages : 2 * num_stages]
    there, back = chosen[2 * num_stages : 3 * num_stages - 1], chosen[3 * num_stages - 1 :]
    messages = zip((*there, None), (None, *back), strict=True)
    return [
        StageSizes(forward=x, backward=y, forward_message=ahead, backward_message=behind)
        for x, y, (ahead, behind) in zip(forward, backward, messages, strict=True)
    ]
