"""Device groups of bounded variance, layers balanced over them, an estimate to rank: after Metis.

Um et al., "Metis: Fast Automatic Distributed Training on Heterogeneous GPUs", USENIX ATC 2024. We could not read the
paper; what follows is what its published code (SamsungLabs/Metis) does, and everything else is ours.

- *Order of devices*: every order of the device types, with all devices of a type together.
- *Device groups*: for every number of stages S, n devices are dealt out in that order in groups of powers of two, each
  of at least v n / S, and the sizes then permuted; v = 0.5 bounds their variance. Equal sizes move together where there
  would be too many permutations.
- *Inside a stage*: all devices are replicas at first (tensor parallelism 1). As long as the layers do not fit, one
  stage at a time halves its replicas and doubles its tensor parallelism.
- *Layers*: in proportion to the speed of the groups, and fewer where memory is short.
- *Estimate* for M micro-batches, W_s = F_s + B_s of stage s, c_s its transfer, g_s its all-reduce and step:

      (M - 1) max W_s + sum W_s + sum of 2 c_s + max g_s

  It ranks all of this, over every number of micro-batches.

Approximated here: device groups that mix device types, among which Metis divides a micro-batch unevenly, are outside
the search space and left out, and so are groups that span servers without filling them. Equal sizes always move
together. Layers are cut by :mod:`stagecut.planner.solvers.heuristic.min_max_cut`, within the memory of the simulated
plan; stages on equal groups change together, those with the most replicas first. Replicas divide the micro-batch, so
further data parallelism comes from identical pipelines. The plans of each variant with the least estimates are
simulated, under any schedule but interleaved.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import OwnObjective, Result
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.share import Share
from stagecut.planner.network.arrangement import assemble
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.solvers.heuristic.allocation_graph import class_orders
from stagecut.planner.solvers.heuristic.candidates import Candidate
from stagecut.planner.solvers.heuristic.min_max_cut import min_max_stops
from stagecut.planner.solvers.heuristic.sequence_costs import SequenceCosts
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from stagecut.planner.solvers.search.refusals import require_schedules
from stagecut.planner.solvers.search.search import Search

NAME = "metis-like"
OBJECTIVE = "estimated iteration time, s"
SCHEDULES = (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B)
VARIANCE = 0.5
"""v: least size of a device group, relative to an equal part of the devices."""
MOST_DEALS, MOST_SIZES = 6, 4
"""Ways to deal out the devices to S stages, the most even first; different sizes up to which a way is permuted.

Half or twice as many changed one of 4 plans, by 0.9 % (2 sizes: gpt2-345m on commodity-32 is faster)."""
MOST_GROUPINGS, MOST_STAGES = 128, 2500
"""Device groupings of each variant, evenly spaced among all, and their stages in total; these bound the time.

Half, twice or without limit: the same 4 plans."""
NUM_SIMULATED = 3
"""Plans of each variant that are simulated; with one, one of 4 plans is 2 % slower, with six none is faster."""


def solve(problem: Problem, search: Search) -> Result:
    """The fastest of the plans with the least estimates; proves nothing.

    Raises
    ------
    UnsupportedError
        If the job allows interleaved plans only.
    """
    require_schedules(problem, NAME, SCHEDULES)
    tables, known = StageTables(search.costs), dict[Share, list[Grouping]]()
    # GPipe last: under it the fewest plans fit.
    for variant in sorted(problem.variants, key=lambda variant: variant.schedule is Schedule.GPIPE):
        if search.out_of_budget:
            break
        if variant.schedule in SCHEDULES:
            if variant.share not in known:
                cluster = search.costs.of(variant.share).cluster
                found = list(groupings(cluster, most_stages=tables.num_layers))
                parts = len(found) / MOST_GROUPINGS, sum(map(len, found)) / MOST_STAGES
                known[variant.share] = found[:: max(1, *map(math.ceil, parts))]
            wanted = (grouping for grouping in known[variant.share] if not search.out_of_budget)
            drafts = (draft for grouping in wanted if (draft := _draft(search, tables, variant, grouping)) is not None)
            for draft in sorted(drafts, key=lambda draft: draft.seconds)[:NUM_SIMULATED]:
                plan = assemble(search.costs.of(variant.share), variant, draft.sequence.arrangement(draft.stops))
                if plan is not None:
                    search.offer([plan], OwnObjective(name=OBJECTIVE, value=draft.seconds))
    return search.result(NAME, proves=False)


Grouping = tuple[PlacedGroup, ...]
"""The device groups of all stages in order, each with all its devices as replicas."""


def groupings(cluster: Cluster, *, most_stages: int) -> Iterator[Grouping]:
    """Device groups over all devices, in order of the number of stages."""
    orders = class_orders(cluster)
    for num_stages in range(1, min(cluster.num_devices, most_stages) + 1):
        for sizes in itertools.islice(deals(cluster.num_devices, num_stages), MOST_DEALS):
            for order, permuted in itertools.product(orders, _permutations(sizes)):
                grouping = _laid_out(cluster, order, permuted)
                if grouping is not None:
                    yield grouping


def estimated_s(sequence: SequenceCosts, stops: Ints) -> float:
    """Metis's estimate of the iteration time of a cut, stops of shape (S,)."""
    costs = sequence.costs(stops[None])
    work_s = costs.forward_s + costs.backward_s
    waiting_s = (sequence.variant.num_microbatches - 1) * work_s.max()
    return float(waiting_s + work_s.sum() + 2 * costs.transfer_s.sum() + costs.tail_s.max())


def deals(left: int, num_stages: int, least: float | None = None) -> Iterator[tuple[int, ...]]:
    """Non-decreasing powers of two, one of at least v n / S for each stage, n in all; the most even first."""
    if num_stages == 0:
        yield ()
        return
    if least is None:
        least = VARIANCE * left / num_stages
    for power in range((left // num_stages).bit_length() - 1, -1, -1):
        size = 1 << power
        if size < least:
            return
        units, rest = divmod(left - size, size)
        # Later sizes are multiples of this one: S - 1 of them can make up the rest exactly under this condition.
        if rest == 0 and units.bit_count() <= num_stages - 1 <= units:
            for later in deals(left - size, num_stages - 1, size):
                yield (size, *later)


def _permutations(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Every order of the sizes, with equal ones together."""
    runs = [tuple(run) for _, run in itertools.groupby(sizes)]
    if len(runs) > MOST_SIZES:
        return [tuple(sizes)]
    return [tuple(itertools.chain.from_iterable(order)) for order in itertools.permutations(runs)]


def _laid_out(cluster: Cluster, order: Sequence[int], sizes: Sequence[int]) -> Grouping | None:
    """Groups of these sizes on consecutive devices; None if one is neither inside an island nor whole hosts."""
    islands = [
        (index, island, group.count)
        for index in order
        for _ in range(cluster.servers[index].count)
        for island, group in enumerate(cluster.servers[index].islands)
    ]
    groups, at, used = list[PlacedGroup](), 0, 0
    for size in sizes:
        index, island, count = islands[at]
        num_hosts = max(1, size // count)
        spanned = {(server_class, number) for server_class, number, _ in islands[at : at + num_hosts]}
        whole = used == 0 and size == num_hosts * count and spanned == {(index, 0)}
        if used + size > count and not whole:
            return None
        opens = used == 0 and island == 0
        placement = Placement(server_class=index, island=island, num_hosts=num_hosts, replicas=size)
        groups.append(PlacedGroup(placement=placement, opens=opens))
        at, used = (at + num_hosts, 0) if used + size >= count else (at, used + size)
    return tuple(groups)


def _draft(search: Search, tables: StageTables, variant: Variant, grouping: Grouping) -> Candidate | None:
    """The draft with the smallest tensor parallel degrees with which the layers fit; None if they fit with none."""

    def cut(degrees: Sequence[int]) -> Candidate | None:
        sequence = SequenceCosts(tables, variant, list(map(_with_degree, grouping, degrees)))
        stops = min_max_stops(sequence)
        search.count("partitions balanced")
        if stops is None:
            return None
        return Candidate(sequence=sequence, stops=stops, seconds=estimated_s(sequence, stops))

    strategies = list(_strategies(search.problem, variant.micro_batch, grouping))
    for number, degrees in enumerate(strategies):
        if number == 1 and cut(strategies[-1]) is None:
            # The largest degrees need the least memory: no degrees fit.
            return None
        found = cut(degrees)
        if found is not None:
            return found
    return None


def _with_degree(group: PlacedGroup, degree: int) -> PlacedGroup:
    """All devices of a group, with that tensor parallel degree."""
    replicas = group.placement.replicas // degree
    return replace(group, placement=replace(group.placement, replicas=replicas, tensor_parallel=degree))


def _strategies(problem: Problem, micro_batch: int, grouping: Grouping) -> Iterator[list[int]]:
    """Tensor parallel degrees of all stages, smallest first; the groups with the most replicas are raised next."""
    choices = {group.placement: _degrees(problem, micro_batch, group.placement) for group in grouping}
    if not all(choices.values()):
        return
    degree_of = {kind: allowed.pop(0) for kind, allowed in choices.items()}
    yield [degree_of[group.placement] for group in grouping]
    while any(choices.values()):
        movable = [kind for kind, allowed in choices.items() if allowed]
        kind = max(movable, key=lambda placement: placement.replicas // degree_of[placement])
        degree_of[kind] = choices[kind].pop(0)
        yield [degree_of[group.placement] for group in grouping]


def _degrees(problem: Problem, micro_batch: int, group: Placement) -> list[int]:
    """Tensor parallel degrees of a stage that uses all devices of a group, increasing."""
    return [
        degree
        for degree in sorted(problem.tensor_parallel_degrees)
        if group.devices_per_host % degree == 0 and problem.job.allows_replicas(group.replicas // degree, micro_batch)
    ]
