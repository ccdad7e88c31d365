"""Equal layer counts on one device group after another: what people do by hand.

For every variant, all stages take the fewest replicas (usually one) and the smallest degree of tensor parallelism with
which everything fits in memory. The layers are split evenly over device groups in the cluster's order. If nothing fits,
half as many groups are tried, down to a single one. Under `interleaved` the groups must be alike, and those of the
first islands are preferred.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from stagecut.planner.core.placement import Placement
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.core.schedule import EASIEST_FIRST, Schedule, warmup_depths
from stagecut.planner.core.share import Share
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.arrangement import arrange, assemble
from stagecut.planner.network.device_groups import PlacedGroup, groups_host_by_host
from stagecut.planner.network.fitted_stages import fit_stages
from stagecut.planner.solvers.interleaved.shapes import Shape, interleaved_plan, shapes_of
from stagecut.planner.solvers.search.search import Search

_Split = tuple[float, Callable[[], Plan | None]]
"""Lower bound in seconds on an even split that fits, and what builds its plan: slow for thousands of pipelines."""


def solve(problem: Problem, search: Search) -> Result:
    """The best even split over the variants; proves nothing.

    Plans are built in the order of their floors, and simulated if their lower bounds are below the best time.
    """
    splits = list[_Split]()
    for variant in problem.variants:
        split = (_even_chunks if variant.schedule is Schedule.INTERLEAVED else _even_split)(search, variant)
        if split is not None:
            splits.append(split)
        if search.out_of_budget:
            break
    for floor_s, build in sorted(splits, key=lambda split: split[0]):
        if floor_s >= search.best_s or (search.best_plan is not None and search.out_of_budget):
            break
        if (plan := build()) is not None:
            search.offer_by_bound([plan])
    return search.result("even", proves=False)


def offer_first(search: Search) -> None:
    """Simulate an even split that is quick to find and to simulate: many pipelines, each with few micro-batches.

    Interleaved plans are left out, since their first candidates are found as quickly.
    """
    for variant in _easiest(search.problem.variants):
        split = _even_split(search, variant)
        plan = None if split is None else split[1]()
        if plan is not None:
            search.offer([plan])
        if plan is not None or search.out_of_budget:
            break


def _easiest(variants: Sequence[Variant]) -> list[Variant]:
    """For every share, the variant that needs least memory; the share with most pipelines comes first."""
    of_share: dict[Share, Variant] = {}
    own = [variant for variant in variants if variant.schedule is not Schedule.INTERLEAVED]
    for variant in sorted(own, key=lambda variant: (EASIEST_FIRST.index(variant.schedule), variant.micro_batch)):
        of_share.setdefault(variant.share, variant)
    return sorted(of_share.values(), key=lambda variant: -variant.share.num_pipelines)


def even_stops(num_layers: int, num_stages: int) -> list[int]:
    """First layer after each stage, with layer counts that differ by at most one."""
    return [stage * num_layers // num_stages for stage in range(1, num_stages + 1)]


def _even_split(search: Search, variant: Variant) -> _Split | None:
    problem, costs = search.problem, search.costs.of(variant.share)
    num_layers, classes = problem.model.num_layers, range(len(costs.cluster.servers))
    choices = [
        groups
        for replicas in range(1, variant.micro_batch + 1)
        for degree in sorted(problem.tensor_parallel_degrees)
        if problem.job.allows_replicas(replicas, variant.micro_batch)
        and (groups := groups_host_by_host(costs.cluster, classes, replicas=replicas, tensor_parallel=degree))
    ]
    most = num_layers
    while most > 0 and not search.out_of_budget:
        for groups in choices:
            floor_s = _floor_s(costs, variant, groups[:most])
            if floor_s is not None:
                arrangement = arrange(groups[:most], even_stops(num_layers, len(groups[:most])))
                return floor_s, partial(assemble, costs, variant, arrangement)
        most = min(most, max(map(len, choices), default=0)) // 2
    return None


def _floor_s(costs: CostModel, variant: Variant, groups: tuple[PlacedGroup, ...]) -> float | None:
    """The largest busy row of the even split on these groups, without transfers; None if a stage does not fit.

    Besides its own M micro-batches, a stage waits for the F and B of the stages before it.
    """
    num_stages = len(groups)
    stop = np.array(even_stops(costs.problem.model.num_layers, num_stages))
    start = np.append(0, stop[:-1])
    depth = np.array(warmup_depths(variant.schedule, num_stages, variant.num_microbatches))
    on: dict[Placement, list[int]] = {}
    for stage, group in enumerate(groups):
        on.setdefault(group.placement, []).append(stage)
    work_s = np.zeros(num_stages)
    for placement, stages in on.items():
        fitting = fit_stages(costs, variant, placement, start[stages], stop[stages], depth[stages])
        if not fitting.fits.all():
            return None
        work_s[stages] = fitting.forward_s + fitting.backward_s
    return float((np.cumsum(work_s) + (variant.num_microbatches - 1) * work_s).max())


def _even_chunks(search: Search, variant: Variant) -> _Split | None:
    costs, num_layers = search.costs.of(variant.share), search.problem.model.num_layers
    shapes = sorted(shapes_of(costs, variant), key=_plainest_first)
    most = num_layers
    while most > 0 and not search.out_of_budget:
        fewer = [shape for shape in shapes if shape.num_groups <= most]
        for _, alike in itertools.groupby(fewer, key=lambda shape: shape.placement):
            shape = next(alike)
            plan = interleaved_plan(costs, shape, even_stops(num_layers, shape.num_stages))
            if plan is not None:
                return 0.0, lambda plan=plan: plan
        most = min(most, max((shape.num_groups for shape in fewer), default=0)) // 2
    return None


def _plainest_first(shape: Shape) -> tuple[int, ...]:
    """Sort key: few replicas, a small degree of tensor parallelism, islands in the cluster's order, many groups."""
    placement = shape.placement
    island = (placement.server_class, placement.island, placement.num_hosts)
    return (placement.replicas, placement.tensor_parallel, *island, -shape.num_groups)
