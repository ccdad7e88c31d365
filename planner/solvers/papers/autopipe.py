"""AutoPipe: a balanced partition into the stages of one pipeline, then moves along its critical path.

W. Liu, Z. Lai, S. Li, Y. Duan, K. Ge, D. Li, "AutoPipe: A Fast Pipeline Parallelism Approach with Balanced
Partitioning and Micro-batch Slicing", CLUSTER 2022; the partitioner of AutoPipe-H (IEEE TC 74(4), 2025)
is the same as far as it is known. The details are those of the planner that the authors published.

Given the forward and backward seconds of each layer (the paper's sub-blocks) and a number of stages p, each on one
device, all alike, find p runs of layers with the least time of one 1F1B iteration until the last backward of the first
stage. :mod:`stagecut.planner.solvers.papers.autopipe_partition.time` defines that time and the critical stage,
:mod:`stagecut.planner.solvers.papers.autopipe_partition.partition` has the two steps of the search. Neither includes
memory or gradient synchronisation.

Approximated here: see the table in docs/papers/autopipe-h.md. Micro-batch slicing, the other half of the paper, belongs
to the schedule, not to this solver; `autopipe-h` plans for unlike servers.
"""

import itertools

import numpy as np

from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.network.arrangement import RECOMPUTE_MODES
from stagecut.planner.solvers.papers.autopipe_partition.partition import balanced_partition, partition
from stagecut.planner.solvers.papers.autopipe_partition.time import StageTimes, timings
from stagecut.planner.solvers.papers.uniform.cluster import UniformCluster, UniformGroup
from stagecut.planner.solvers.papers.uniform.variants import offer_each, uniform_variants
from stagecut.planner.solvers.search.search import Search

NAME = "autopipe"
OBJECTIVE = "iteration without synchronisation, s"
NUM_SEARCHED = 3
"""Numbers of stages that fit and are searched, on each kind of device group.

With 1 or 2, one of 4 plans is 11 or 2 % slower; with 6 none is faster."""
Timed = tuple[Plan, float]
"""A plan and its iteration time in AutoPipe's model, in seconds."""


def solve(problem: Problem, search: Search) -> Result:
    """AutoPipe's plan for every micro-batch size and number of pipelines, the fastest by simulation.

    Raises
    ------
    UnsupportedError
        If the job does not allow 1F1B, or no share of the cluster consists of equal servers.
    """
    variants = sorted(uniform_variants(search, NAME), key=lambda pair: _variant_floor_s(*pair))
    offer_each(search, variants, _best_plan, OBJECTIVE)
    return search.result(NAME, proves=False)


def stage_times(
    uniform: UniformCluster, variant: Variant, group: UniformGroup, *, num_stages: int, recompute: bool
) -> StageTimes:
    """Times of the layers on equal groups of the slowest devices, one group for each stage."""
    stops = np.arange(uniform.costs.problem.model.num_layers + 1)
    cost = uniform.stage_costs(
        group, micro_batch=variant.micro_batch, recompute=recompute, start=np.zeros_like(stops), stop=stops
    )
    inside_s, between_s = uniform.transfers_s(variant)
    leaves = np.arange(1, num_stages) % (uniform.devices_per_server // group.num_devices) == 0
    return StageTimes(
        forward_s=np.tile(cost.forward_s, (num_stages, 1)),
        backward_s=np.tile(cost.backward_s, (num_stages, 1)),
        transfer_s=np.where(leaves[:, None], between_s, inside_s),
    )


def floor_s(work_s: float, *, num_stages: int, num_microbatches: int) -> float:
    """Lower bound of the iteration time for layers with so many seconds of forward and backward.

    A stage computes M micro-batches, after the first one has passed the stages before it and before the
    last one has returned through them: T >= (w_1 + .. + w_{s-1}) + M w_s. So every stage leaves at least
    (1 - 1/M) of what the stages before it leave of T, and T - work >= T (1 - 1/M)^p.
    """
    return work_s / (1 - (1 - 1 / num_microbatches) ** num_stages)


def _variant_floor_s(variant: Variant, uniform: UniformCluster) -> float:
    single = stage_times(uniform, variant, UniformGroup(), num_stages=1, recompute=False)
    num_stages = min(single.num_layers, uniform.num_devices)
    return floor_s(float(single.work_s[0, -1]), num_stages=num_stages, num_microbatches=variant.num_microbatches)


def _best_plan(search: Search, variant: Variant, uniform: UniformCluster) -> Timed | None:
    """The best plan on the smallest device groups that have one: few replicas first, then small degrees."""
    groups = (group for group in uniform.groups(variant.micro_batch) if group.num_devices <= uniform.devices_per_server)
    smallest_first = sorted(groups, key=lambda group: (group.replicas, group.tensor_parallel))
    return next((best for group in smallest_first if (best := _best_on(search, variant, uniform, group))), None)


def _best_on(search: Search, variant: Variant, uniform: UniformCluster, group: UniformGroup) -> Timed | None:
    """The plan with the least time in AutoPipe's model, of the most promising numbers of stages that fit."""
    found = (
        timed
        for num_stages in _promising(search, variant, uniform, group)
        if not search.out_of_budget and (timed := _planned(search, variant, uniform, group, num_stages))
    )
    return min(itertools.islice(found, NUM_SEARCHED), key=lambda timed: timed[1], default=None)


def _promising(search: Search, variant: Variant, uniform: UniformCluster, group: UniformGroup) -> list[int]:
    """Numbers of stages, those whose balanced partition takes the least time first."""
    balanced_s = dict[int, float]()
    groups = uniform.devices_per_server // group.num_devices * uniform.num_servers
    for num_stages in range(min(groups, uniform.costs.problem.model.num_layers), 0, -1):
        times = stage_times(uniform, variant, group, num_stages=num_stages, recompute=False)
        if search.out_of_budget and balanced_s:
            break
        timing = timings(times, balanced_partition(times)[None], variant.num_microbatches)
        balanced_s[num_stages] = float(timing.seconds[0])
    return sorted(balanced_s, key=lambda num_stages: balanced_s[num_stages])


def _planned(
    search: Search, variant: Variant, uniform: UniformCluster, group: UniformGroup, num_stages: int
) -> Timed | None:
    """The plan with `num_stages` stages; None if it does not fit in memory, which is counted."""
    for recompute in RECOMPUTE_MODES[search.problem.job.recompute]:
        times = stage_times(uniform, variant, group, num_stages=num_stages, recompute=recompute)
        found = partition(times, variant.num_microbatches, stopped=lambda: search.out_of_budget)
        search.count("partitions found")
        plan = uniform.plan(variant, found.stops.tolist(), [group] * num_stages)
        if plan is not None and (recompute or not any(stage.recompute for stage in plan.stages)):
            return plan, found.seconds
    search.count("numbers of stages over memory")
    return None
