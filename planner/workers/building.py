"""Plans from chains: which devices and hosts the workers get."""

from collections.abc import Iterator, Sequence

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.plan import Stage
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.waves import Carrier
from stagecut.planner.workers.rows.chain_program import Chain
from stagecut.planner.workers.rows.kinds import Counts
from stagecut.planner.workers.rows.owners import owners_of
from stagecut.planner.workers.rows.row_tables import RowTables, Setting

Seats = tuple[tuple[str, ...], ...]
"""Names of a worker's devices of each kind, host by host."""


def seats_of(cluster: Cluster, patterns: Sequence[Counts]) -> list[Seats]:
    """Devices for every pattern, on as few hosts as possible, the largest worker first.

    A worker takes the host of a class that it fills best, or else all that the fullest ones have left.
    """
    rooms = [_Rooms(cluster, index) for index in range(len(cluster.servers))]
    seats: dict[int, Seats] = {}
    for index in sorted(range(len(patterns)), key=lambda index: (-sum(patterns[index]), index)):
        left = iter(patterns[index])
        seats[index] = tuple(names for room in rooms for names in room.take([next(left) for _ in room.free[0]]))
    return [seats[index] for index in range(len(patterns))]


class _Rooms:
    """Free devices of the hosts of one class, by host and island."""

    def __init__(self, cluster: Cluster, server_class: int) -> None:
        self.free = [island_devices(cluster, server_class, host) for host in range(cluster.servers[server_class].count)]

    def take(self, wanted: list[int]) -> list[tuple[str, ...]]:
        """Remove and return as many devices of each island as wanted."""
        taken = [list[str]() for _ in wanted]
        while any(wanted):
            host = min(self.free, key=lambda host: self._misfit(host, wanted))
            for island, number in enumerate(wanted):
                part = host[island][:number]
                del host[island][: len(part)]
                taken[island] += part
                wanted[island] -= len(part)
        return [tuple(names) for names in taken]

    @staticmethod
    def _misfit(host: list[list[str]], wanted: list[int]) -> tuple[int, int]:
        given = sum(min(len(free), number) for free, number in zip(host, wanted, strict=True))
        return -given, sum(map(len, host))


def island_devices(cluster: Cluster, server_class: int, host: int) -> list[list[str]]:
    """Names of the devices of one host, by island."""
    server, name = cluster.servers[server_class], cluster.host_names(server_class)[host]
    slots: Iterator[int] = iter(range(server.num_devices))
    return [[f"{name}/{next(slots)}" for _ in range(island.count)] for island in server.islands]


def worker_of(tables: RowTables, setting: Setting, chain: Chain, depths: Sequence[int], seats: Seats) -> VirtualWorker:
    """The virtual worker with these stages, which hold so many minibatches, on these devices."""
    names, minibatch, stages = [iter(own) for own in seats], tables.problem.job.micro_batches[0], []
    for kind, start, stop, depth in zip(chain.kinds, chain.starts, chain.stops, depths, strict=True):
        modes = [own.recompute for own in tables.options(kind, setting.in_flight, start, stop) if depth <= own.most]
        stages.append(
            Stage(
                start=start,
                stop=stop,
                devices=(next(names[kind]),),
                recompute=modes[0],
                warmup_depth=depth,
                forward_micro_batch=minibatch,
                backward_micro_batch=minibatch,
            )
        )
    return VirtualWorker(stages=tuple(stages), minibatch=minibatch, in_flight=setting.in_flight, wave=setting.wave)


def plan_of(tables: RowTables, workers: tuple[VirtualWorker, ...]) -> WavePlan:
    """The plan of these workers under the job's rule, with owners for parameter servers."""
    choices = tables.choices
    served = choices.carrier is Carrier.PARAMETER_SERVER
    return WavePlan(
        workers=workers,
        clock_distance=choices.clock_distance,
        local_step=choices.local_step,
        carrier=choices.carrier,
        shards=choices.shards,
        owners=owners_of(tables.model, workers, choices.shards) if served else (),
    )
