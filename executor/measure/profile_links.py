"""Measures the devices of a cluster and the links between them, with processes on this machine or torchrun's."""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

import torch
import torch.distributed as dist

from stagecut.executor.machine.devices import device_memory_bytes, device_title, device_type_name, slug
from stagecut.executor.measure.curves import Curve
from stagecut.executor.measure.kernels import matmul_timings, synthetic_parameters, update_timings
from stagecut.executor.measure.message_times import MessageTimer
from stagecut.executor.measure.timings import Timing
from stagecut.executor.measure.workers import Worker, run_workers
from stagecut.executor.ranks.environment import RUN_FOLDER, is_rank
from stagecut.executor.ranks.run_folder import run_folder
from stagecut.executor.ranks.world import World, join_world
from stagecut.executor.transport.objects import gather_everywhere
from stagecut.planner.core.precision import Precision

TIMED_PRECISIONS = {"cpu": (Precision.FP32, Precision.BF16), "cuda": tuple(Precision)}
"""Matrix products in fp16 are very slow on most CPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkChoices:
    """What to measure, and how."""

    device: str
    """`cpu` or `cuda`."""
    device_type: str | None = None
    """None: the device's own name."""
    processes: int
    """On this machine; ignored under torchrun."""
    threads: int
    """Threads per process."""
    sizes: tuple[int, ...]
    """Message sizes in bytes, multiples of 4, increasing."""
    repetitions: int
    num_params: int
    """Parameters in the optimizer step that gives the memory bandwidth."""
    matrix_side: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMeasurement:
    """What one rank measured; curves are of the messages it sent, by target rank."""

    host: str
    """Identifies the host."""
    host_name: str
    device_type: str
    device_title: str
    memory_bytes: int
    products: dict[Precision, list[Timing]]
    updates: list[Timing]
    one_way: dict[int, Curve]
    streaming: dict[int, Curve]
    all_reduce: dict[int, Curve]
    """By number of ranks."""

    @property
    def computed(self) -> tuple[list[Timing], ...]:
        """Timings of everything but messages."""
        return (*self.products.values(), self.updates)


def profile_links(choices: LinkChoices) -> list[RankMeasurement] | None:
    """The measurements of all ranks; under torchrun, None on all ranks but the first.

    Raises
    ------
    BadInputError
        If there are too few GPUs.
    """
    if is_rank():
        return _in_world(choices)
    with run_folder() as folder:
        return run_workers(_local_rank, choices.processes, choices, folder)[0]


def hosts_of(hosts: Sequence[str]) -> list[list[int]]:
    """The ranks of each host, in order of their first ranks."""
    found: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        found.setdefault(host, []).append(rank)
    return list(found.values())


def pairs_to_measure(hosts: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Neighbouring ranks within each host, and the first ranks of any two hosts."""
    inside = [pair for ranks in hosts for pair in pairwise(ranks)]
    return inside + list(combinations([ranks[0] for ranks in hosts], 2))


def group_sizes(num_ranks: int) -> tuple[int, ...]:
    """Numbers of ranks whose all-reduce is measured: powers of two, and all."""
    powers = [2**power for power in range(1, num_ranks.bit_length())]
    return tuple(sorted({*(power for power in powers if power <= num_ranks), num_ranks} - {1}))


def _local_rank(worker: Worker, choices: LinkChoices, folder: Path) -> list[RankMeasurement] | None:
    os.environ.update(
        RANK=str(worker.rank),
        WORLD_SIZE=str(worker.size),
        LOCAL_RANK=str(worker.rank),
        LOCAL_WORLD_SIZE=str(worker.size),
    )
    os.environ[RUN_FOLDER] = str(folder)
    return _in_world(choices)


def _in_world(choices: LinkChoices) -> list[RankMeasurement] | None:
    world = join_world(device=choices.device)
    torch.set_num_threads(choices.threads)
    found = _measure(world, choices)
    gathered = world.gather(found, classes=(RankMeasurement, Precision, Timing))
    world.leave()
    return gathered


def _measure(world: World, choices: LinkChoices) -> RankMeasurement:
    names = gather_everywhere(_host_key())
    hosts = hosts_of(names)
    timer = MessageTimer(world.device, choices.sizes, repetitions=choices.repetitions)
    one_way, streaming = _curves_of_pairs(world, timer, hosts)
    all_reduce = _curves_of_groups(world, timer, hosts)
    dist.barrier()
    return RankMeasurement(
        host=names[world.rank],
        host_name=slug(socket.gethostname()) or "host",
        device_type=choices.device_type or device_type_name(world.device, choices.threads),
        device_title=device_title(world.device, choices.threads),
        memory_bytes=device_memory_bytes(world.device, names.count(names[world.rank])),
        products={
            precision: matmul_timings(
                world.device, precision, side=choices.matrix_side, repetitions=choices.repetitions
            )
            for precision in TIMED_PRECISIONS[world.device.type]
        },
        updates=update_timings(
            synthetic_parameters(choices.num_params, world.device), world.device, repetitions=choices.repetitions
        ),
        one_way=one_way,
        streaming=streaming,
        all_reduce=all_reduce,
    )


def _curves_of_pairs(
    world: World, timer: MessageTimer, hosts: Sequence[Sequence[int]]
) -> tuple[dict[int, Curve], dict[int, Curve]]:
    """Time one pair after another, with no other traffic."""
    one_way, streaming = {}, {}
    for pair in pairs_to_measure(hosts):
        dist.barrier()
        if world.rank in pair:
            peer, asks = pair[pair[0] == world.rank], pair[0] == world.rank
            curves = timer.one_way(peer, asks=asks), timer.streaming(peer, asks=asks)
            if asks:
                one_way[peer], streaming[peer] = curves
    return one_way, streaming


def _curves_of_groups(world: World, timer: MessageTimer, hosts: Sequence[Sequence[int]]) -> dict[int, Curve]:
    """Time all-reduces among the first ranks of every host, one group after another."""
    curves = {}
    for ranks in hosts:
        for size in group_sizes(len(ranks)):
            group = dist.new_group(list(ranks[:size]))
            dist.barrier()
            if world.rank in ranks[:size]:
                assert isinstance(group, dist.ProcessGroup)
                curves[size] = timer.all_reduce(group)
    return curves


def _host_key() -> str:
    """Torchrun numbers the hosts, whose names need not be distinct, for example in containers."""
    return os.environ.get("GROUP_RANK", socket.gethostname())
