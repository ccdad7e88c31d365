"""All devices of a pipeline in equal groups, one for each stage: what is set by hand for training frameworks."""

from collections.abc import Iterator, Sequence

from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.solvers.papers.uniform.cluster import UniformCluster


def seats_over_all_devices(
    uniform: UniformCluster, micro_batch: int, *, degrees: Sequence[int]
) -> Iterator[tuple[PlacedGroup, ...]]:
    """Every way to make all devices of a pipeline into equal groups, one for each stage.

    Parameters
    ----------
    degrees
        Of tensor parallelism, t.
    """
    for group in uniform.groups(micro_batch):
        num_stages, rest = divmod(uniform.num_devices, group.num_devices)
        if rest or group.tensor_parallel not in degrees:
            continue
        seats = uniform.seats([group] * num_stages)
        if seats is not None:
            yield seats
