"""Equal blocks on equal device groups, as people set it by hand in Megatron-LM.

Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021: uniform
degrees p, t and d of pipeline, tensor and data parallelism over all n devices,

    p t d = n,    t at most the devices of a server,    blocks of the model / p on every stage,

under 1F1B, or with v chunks of blocks / (p v) on every device under the interleaved schedule of that paper. A block is
a transformer block; the embedding goes with the first, the head with the last. People choose p, t, d and the
micro-batch size by rules of thumb or by trial. Here every choice is tried, and the simulator picks.

Approximated here: d is any product of identical pipelines and replicas of a stage that the job allows. Where p does not
divide the number of blocks Megatron-LM refuses; here some stages have one block more. In a model without attention
parts every layer is a block. Device groups follow each other in the cluster's order, so t lies inside a server, and a
server is filled before the next one is begun: this is what people get on servers of different devices when they do not
tell them apart. Interleaved plans use all devices too, and exist where all devices are alike.
"""

import itertools
from collections.abc import Iterator, Sequence

from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.interleaved.shapes import interleaved_plan, shapes_of
from stagecut.planner.solvers.papers.uniform.cluster import UniformCluster
from stagecut.planner.solvers.papers.uniform.variants import uniform_variants
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
    """First layer of every block: each attention part begins one or, in a model without any, each layer.

    Layers before the first attention part, and an embedding, belong to the first block; layers
    after the last one, and a head, to the last.
    """
    kinds = [layer.kind for layer in model.layers]
    starts = [index for index, kind in enumerate(kinds) if kind == "attention"]
    if not starts:
        starts = [index for index, kind in enumerate(kinds) if kind not in ("embedding", "head")]
    return (0, *starts[1:])


def _plans(uniform: UniformCluster, variant: Variant, starts: Sequence[int]) -> Iterator[Plan]:
    ends = (*starts, uniform.costs.problem.model.num_layers)

    def even_stops(num_stages: int) -> list[int]:
        """First layer after each stage, with block counts that differ by at most one."""
        return [ends[stage * len(starts) // num_stages] for stage in range(1, num_stages + 1)]

    if variant.schedule is Schedule.ONE_F_ONE_B:
        degrees = uniform.costs.problem.tensor_parallel_degrees
        yield from uniform.plans_on_all_devices(variant, even_stops, most_stages=len(starts), degrees=degrees)
        return
    costs = uniform.costs
    for shape in shapes_of(costs, variant):
        num_devices = shape.num_groups * shape.placement.replicas * shape.placement.tensor_parallel
        possible = num_devices == costs.cluster.num_devices and shape.num_stages <= len(starts)
        if possible and (plan := interleaved_plan(costs, shape, even_stops(shape.num_stages))):
            yield plan
