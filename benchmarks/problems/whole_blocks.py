"""Models whose layers are whole transformer blocks, between which planners before AutoPipe cut."""

import itertools
from collections.abc import Iterator, Sequence

from stagecut.planner.core.cluster import Cluster, DeviceType
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.layer_times import layer_times


def of_whole_blocks(problem: Problem) -> Problem:
    """The same problem with the parts of each block, `block3.attention` and the like, as one layer.

    A block takes exactly what its parts take for the job's micro-batches on single devices, so that
    times of plans may be compared.

    Raises
    ------
    ValueError
        If the job allows replicas or tensor parallelism, or the model has skip edges.
    """
    if problem.job.replicas != (1,) or problem.job.tensor_parallel != (1,) or problem.model.skip_edges:
        raise ValueError(f"{problem.model.name}: whole blocks are timed for chains on single devices only")
    model = ModelProfile(
        name=problem.model.name,
        layers=tuple(_block(problem, *bounds) for bounds in _bounds(problem.model)),
        precision=problem.model.precision,
        sequence_length=problem.model.sequence_length,
    )
    return Problem(model=model, cluster=problem.cluster, job=problem.job)


def _bounds(model: ModelProfile) -> Iterator[tuple[int, int]]:
    """First layer of every block, and one past its last."""
    start = 0
    for _, parts in itertools.groupby(model.layers, key=lambda layer: layer.name.partition(".")[0]):
        stop = start + sum(1 for _ in parts)
        yield start, stop
        start = stop


def _block(problem: Problem, start: int, stop: int) -> Layer:
    parts = problem.model.layers[start:stop]
    return Layer(
        name=parts[0].name.partition(".")[0],
        kind=parts[0].kind if len(parts) == 1 else "block",
        params_bytes=sum(part.params_bytes for part in parts),
        shared_params_bytes=sum(part.shared_params_bytes for part in parts),
        saved_bytes=sum(part.saved_bytes for part in parts),
        output_bytes=parts[-1].output_bytes,
        working_bytes=max(part.working_bytes for part in parts),
        times=tuple(_table(problem, device, start, stop) for device in _device_types(problem.cluster)),
    )


def _table(problem: Problem, device: DeviceType, start: int, stop: int) -> TimeTable:
    sizes = tuple(sorted(problem.job.micro_batches))
    times = [layer_times(problem.model, device, size) for size in sizes]
    return TimeTable(
        device_type=device.name,
        samples=sizes,
        forward_s=_sums([forward_s for forward_s, _ in times], start, stop),
        backward_s=_sums([backward_s for _, backward_s in times], start, stop),
    )


def _sums(seconds: Sequence[Sequence[float]], start: int, stop: int) -> tuple[float, ...]:
    return tuple(float(sum(of_size[start:stop])) for of_size in seconds)


def _device_types(cluster: Cluster) -> list[DeviceType]:
    names = {island.device_type: None for server in cluster.servers for island in server.islands}
    return [cluster.device_type(name) for name in names]
