"""Small cases to the end: every plan whose rows allow more than the best one has is simulated."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stagecut.planner.workers.building import Seats, island_devices
from stagecut.planner.workers.cases import Case
from stagecut.planner.workers.fixed_allocation import offer_workers
from stagecut.planner.workers.rows.chain_program import Chain
from stagecut.planner.workers.rows.chains import Chains
from stagecut.planner.workers.rows.depths import all_depths
from stagecut.planner.workers.rows.worker_rows import Depths, WorkerRows
from stagecut.planner.workers.wave_search import WaveSearch

MOST_CHAINS, MOST_PLANS = 20_000, 3_000
"""Workers looked at, and plans simulated, in one case: a few seconds each."""

Slot = tuple[int, int]
"""Kind of a device, and index of its host in the class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A chain with depths, on given hosts."""

    chain: Chain
    depths: Depths
    hosts: tuple[int, ...]

    @property
    def slots(self) -> Counter[Slot]:
        """How many devices of each kind and host."""
        return Counter(zip(self.chain.kinds, self.hosts, strict=True))


def exhaust(search: WaveSearch, chains: Chains, case: Case) -> bool:
    """Simulate all plans of a case that may exceed the target; False if they are too many or the budget ends."""
    samples = case.num_workers * case.setting.wave * search.problem.job.micro_batches[0]
    longest_s = samples / search.target if search.target > 0 else math.inf
    room = _slots(chains)
    if _num_chains(chains, room, case) > MOST_CHAINS:
        return False
    workers = list(itertools.islice(_workers(chains, room, case, longest_s), MOST_CHAINS + 1))
    if len(workers) > MOST_CHAINS:
        return False
    number = 0
    for team in _teams(workers, case.num_workers, room):
        if max(len(own.hosts) for own in team) < case.longest:
            continue
        number += 1
        if number > MOST_PLANS or search.out_of_budget:
            return False
        seats = _seated(chains, team)
        stages, depths = [own.chain for own in team], [own.depths for own in team]
        offer_workers(search, chains, [case.setting] * len(team), seats, stages, depths, in_full=True)
    return True


def _slots(chains: Chains) -> Counter[Slot]:
    servers = chains.kinds.cluster.servers
    return Counter(
        {
            (kind, host): servers[own.server_class].islands[own.island].count
            for kind, own in enumerate(chains.kinds.placements)
            for host in range(servers[own.server_class].count)
        }
    )


def _num_chains(chains: Chains, room: Counter[Slot], case: Case) -> int:
    """Workers at most, whether or not they have the devices."""
    return sum(
        len(room) ** size * math.comb(chains.tables.num_layers - 1, size - 1) for size in _sizes(chains, room, case)
    )


def _sizes(chains: Chains, room: Counter[Slot], case: Case) -> range:
    """Numbers of stages that a worker may have."""
    most = min(len(chains.lattice.levels) - 1, room.total() - case.num_workers + 1)
    return range(1, most + 1)


def _workers(chains: Chains, room: Counter[Slot], case: Case, longest_s: float) -> Iterator[Worker]:
    """Those whose rows keep a period."""
    num_layers = chains.tables.num_layers
    for size in _sizes(chains, room, case):
        for slots in itertools.product(room, repeat=size):
            if not Counter(slots) <= room:
                continue
            for inner in itertools.combinations(range(1, num_layers), size - 1):
                chain = Chain(kinds=tuple(kind for kind, _ in slots), stops=(*inner, num_layers))
                for depths in _depths(chains, case, chain, longest_s):
                    yield Worker(chain=chain, depths=depths, hosts=tuple(host for _, host in slots))


def _depths(chains: Chains, case: Case, chain: Chain, longest_s: float) -> Iterator[Depths]:
    rows, deepest = WorkerRows(chains, case.setting, chain), case.setting.deepest
    if rows.least_depths(longest_s) is None:
        return
    for depths in all_depths([min(deepest, options[-1].most) for options in rows.options]):
        if rows.least_depths(longest_s, depths) is not None:
            yield depths


def _teams(workers: Sequence[Worker], number: int, room: Counter[Slot]) -> Iterator[tuple[Worker, ...]]:
    """In every order, which decides who is served first."""
    if number == 0:
        yield ()
        return
    for own in workers:
        if own.slots <= room:
            for others in _teams(workers, number - 1, room - own.slots):
                yield own, *others


def _seated(chains: Chains, team: Sequence[Worker]) -> list[Seats]:
    free = {
        (kind, host): island_devices(chains.kinds.cluster, own.server_class, host)[own.island]
        for kind, own in enumerate(chains.kinds.placements)
        for host in range(chains.kinds.cluster.servers[own.server_class].count)
    }
    seats = []
    for worker in team:
        names = [list[str]() for _ in chains.kinds.placements]
        for kind, host in zip(worker.chain.kinds, worker.hosts, strict=True):
            names[kind].append(free[kind, host].pop(0))
        seats.append(tuple(map(tuple, names)))
    return seats
