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

import itertools
from collections.abc import Iterator, Sequence

from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.network.arrangement import arrange, assemble
from stagecut.planner.solvers.interleaved.shapes import interleaved_plan, shapes_of
from stagecut.planner.solvers.papers.uniform.cluster import UniformCluster, uniform_variants
from stagecut.planner.solvers.papers.uniform.equal_groups import seats_over_all_devices
from stagecut.planner.solvers.search.search import Search

NAME = "megatron-even"
SCHEDULES = (Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED)


def solve(problem: Problem, search: Search) -> Result:
    """The fastest uniform plan; proves nothing.

    Raises
    ------
    UnsupportedError
        If the job allows no schedule of Megatron-LM, or the cluster's servers differ in size.
    """
    starts = block_starts(problem.model)
    variants = uniform_variants(search, NAME, schedules=SCHEDULES)
    plans = (_plans(uniform, variant, starts) for variant, uniform in variants if not search.out_of_budget)
    search.offer_by_bound([*itertools.chain.from_iterable(plans)])
    return search.result(NAME, proves=False)


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


def _plans(uniform: UniformCluster, variant: Variant, starts: Sequence[int]) -> Iterator[Plan]:
    interleaved = variant.schedule is Schedule.INTERLEAVED
    for plan in (_interleaved_plans if interleaved else _plain_plans)(uniform, variant, starts):
        if plan is not None:
            yield plan


def _plain_plans(uniform: UniformCluster, variant: Variant, starts: Sequence[int]) -> Iterator[Plan | None]:
    costs, degrees = uniform.costs, uniform.costs.problem.tensor_parallel_degrees
    for seats in seats_over_all_devices(uniform, variant.micro_batch, degrees=degrees):
        if len(seats) <= len(starts):
            stops = _even_stops(costs.problem.model, starts, len(seats))
            yield assemble(costs, variant, arrange(seats, stops))


def _interleaved_plans(uniform: UniformCluster, variant: Variant, starts: Sequence[int]) -> Iterator[Plan | None]:
    costs = uniform.costs
    for shape in shapes_of(costs, variant):
        num_devices = shape.num_groups * shape.placement.replicas * shape.placement.tensor_parallel
        if num_devices == costs.cluster.num_devices and shape.num_stages <= len(starts):
            yield interleaved_plan(costs, shape, _even_stops(costs.problem.model, starts, shape.num_stages))


def _even_stops(model: ModelProfile, starts: Sequence[int], num_stages: int) -> list[int]:
    """First layer after each stage, block counts equal up to one."""
    ends = (*starts, model.num_layers)
    return [ends[stage * len(starts) // num_stages] for stage in range(1, num_stages + 1)]
