"""All devices of a pipeline in equal groups, one for each stage, as people set it by hand in training frameworks."""

from collections.abc import Callable, Iterator, Sequence

from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Variant
from stagecut.planner.network.arrangement import arrange, assemble
from stagecut.planner.solvers.papers.uniform.cluster import UniformCluster


def plans_on_all_devices(
    uniform: UniformCluster,
    variant: Variant,
    stops: Callable[[int], Sequence[int]],
    *,
    most_stages: int,
    degrees: Sequence[int],
) -> Iterator[Plan]:
    """The plan that fits in memory for every way to divide all devices of a pipeline into equal groups.

    Parameters
    ----------
    stops
        First layer after each stage, for a number of stages.
    most_stages
        Longer pipelines are passed over.
    degrees
        Tensor parallel degrees to use.
    """
    for group in uniform.groups(variant.micro_batch):
        num_stages, rest = divmod(uniform.num_devices, group.num_devices)
        if rest or num_stages > most_stages or group.tensor_parallel not in degrees:
            continue
        placed = uniform.placements([group] * num_stages)
        plan = None if placed is None else assemble(uniform.costs, variant, arrange(placed, stops(num_stages)))
        if plan is not None:
            yield plan
