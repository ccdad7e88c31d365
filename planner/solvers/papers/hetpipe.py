"""HetPipe's partition of a model over a virtual worker, as a program in PuLP.

Park et al., "HetPipe", USENIX ATC 2020: a virtual worker (VW) is one pipeline on k GPUs, possibly of different types,
with N_m minibatches in flight; several VWs train the same model data parallel. How it cuts the model is stated here as
we know it, unchecked against the paper's text: one stage on each GPU; the first stage holds N_m minibatches, the last
one only one; of the cuts that fit, the one whose slowest stage is the fastest, for N_m = 1, 2, ... while any fits.

Sets
    q in 1 .. k             stages, each with its GPU, in order
    (i, j), 0 <= i < j <= L runs of layers [i, j)

Parameters; in the program, times are divided by the largest
    a[q,i,j]                seconds of stage q with layers [i, j): forward and backward of one minibatch on its GPU,
                            the activations received over boundary i, the gradients received over boundary j
    fits[q,i,j]             whether the stage has memory for as many minibatches as it holds

Variables
    x[q,i,j] binary         stage q has the layers [i, j); only where it fits
    T                       the slowest stage

Objective: min T

Constraints
    sum of x[q,.,.] = 1                     for every q
    sum of a[q,i,j] x[q,i,j] <= T           for every q
    sum of x[q,.,j] = sum of x[q+1,j,.]     for every q < k and j

The first run begins at layer 0, the last one ends at layer L. To keep the program small, bisection first finds a limit
that is at least T and exceeds it by less than 0.1 %. Runs that take longer than the limit, or are on no path from layer
0 to L, are left out.

Approximated here: the formulation is ours, solved by HiGHS. The paper's VWs push to a parameter server and may run
ahead of each other (wave synchronous parallelism); here pipelines flush and all-reduce once per iteration, under 1F1B
or eager 1F1B. So a minibatch is a micro-batch, a stage holds the smaller of N_m and its warm-up depth, and the N_m of a
plan that is run is the warm-up depth of its first stage; cuts for smaller N_m are offered where they fit as well. A run
that only fits with recomputation takes correspondingly longer. The order of a VW's GPUs is left open: every order of
server classes is tried, 24 at most, with the hosts of a class and the GPUs of a host next to each other.

Of the paper's allocations of four nodes with four GPUs each, *equal distribution* (ED: each VW has a GPU of each node)
is a share of the cluster among identical pipelines; *node partition* (NP: each VW has a node of its own) is one where
the nodes are alike. NP on nodes that differ, and the *hybrid* (HD: VWs of two kinds), make pipelines that differ, and
are left out. k is every size of a share.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pulp

from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.numerics.tolerances import EQUAL_PAPER_TIMES, HETPIPE_BRACKET, HETPIPE_GAP
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import OwnObjective, Result
from stagecut.planner.core.schedule import Schedule, warmup_depth
from stagecut.planner.core.share import Share
from stagecut.planner.network.arrangement import assemble
from stagecut.planner.network.device_groups import PlacedGroup, groups_host_by_host
from stagecut.planner.solvers.heuristic.allocation_graph import class_orders
from stagecut.planner.solvers.heuristic.sequence_costs import SequenceCosts
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables, first_fit
from stagecut.planner.solvers.search.pulp_highs import highs
from stagecut.planner.solvers.search.refusals import require_schedules, require_single_devices
from stagecut.planner.solvers.search.search import Search

NAME = "hetpipe"
OBJECTIVE = "slowest partition of a virtual worker, s"
SCHEDULES = (Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B)


def solve(problem: Problem, search: Search) -> Result:
    """The partitions of all virtual workers, the fastest by simulation; proves nothing.

    Raises
    ------
    UnsupportedError
        If the job allows neither 1F1B nor eager 1F1B, or no stages of a single device.
    """
    variants = _variants(problem)
    tables = StageTables(search.costs)
    known: dict[_Key, WorkerPartition | None] = {}
    for variant in variants:
        for partition in _partitions(search, tables, variant, known):
            sequence = partition.worker.sequence
            plan = assemble(search.costs.of(variant.share), variant, sequence.arrangement(partition.stops))
            if plan is not None:
                search.offer([plan], OwnObjective(name=OBJECTIVE, value=partition.seconds))
        if search.out_of_budget:
            break
    return search.result(NAME, proves=False)


class Worker:
    """A virtual worker: one device for each stage, in order.

    Only the variant's share and micro-batch size matter for the times.
    """

    def __init__(self, tables: StageTables, variant: Variant, devices: Sequence[PlacedGroup]) -> None:
        self.sequence = SequenceCosts(tables, variant, devices)
        self._tables = [tables.of(variant.share, variant.micro_batch, device.placement) for device in devices]
        nothing = np.zeros((1, self.sequence.num_layers + 1))
        self._received_s = np.vstack([nothing, self.sequence.transfer_s, nothing])

    def seconds(self, in_flight: Sequence[int]) -> Floats:
        """a[q,i,j] of every run, recomputation included; infinite if it is empty or does not fit, (k, L + 1, L + 1).

        `in_flight` is the number of minibatches that each stage holds.
        """
        num_nodes, sequence = self.sequence.num_layers + 1, self.sequence
        start, stop = np.ogrid[:num_nodes, :num_nodes]
        seconds = np.empty((len(self._tables), num_nodes, num_nodes))
        for q, (table, held) in enumerate(zip(self._tables, in_flight, strict=True)):
            recompute, fits = first_fit(start, table.plain.starts(held), table.recomputing.starts(held))
            taken_s = (
                (sequence.work_s[q][stop] - sequence.work_s[q][start])
                + np.where(recompute, sequence.forward_s[q][stop] - sequence.forward_s[q][start], 0.0)
                + self._received_s[q][start]
                + self._received_s[q + 1]
            )
            seconds[q] = np.where(fits & (start < stop), taken_s, np.inf)
        return seconds

    def slowest_s(self, stops: Ints, in_flight: Sequence[int]) -> float:
        """Seconds of the slowest stage of a cut, stops of shape (k,); infinite if a stage does not fit."""
        starts = np.concatenate(([0], stops[:-1]))
        return float(self.seconds(in_flight)[np.arange(len(stops)), starts, stops].max())


class WorkerPartition(NamedTuple):
    """The best cut for a number of minibatches in flight."""

    worker: Worker
    stops: Ints
    """Shape (k,)."""
    seconds: float
    """Time of the slowest stage."""


_Key = tuple[Share, int, tuple[int, ...]]
"""Share, micro-batch size, and minibatches that each stage holds."""


def bracket(seconds: Floats) -> tuple[float, float]:
    """Two close limits, of which only the larger one has a cut whose stages stay within it; infinite if none fits.

    `seconds` are those of every run, shape (k, L + 1, L + 1).
    """
    if not on_a_path(np.isfinite(seconds)).any():
        return math.inf, math.inf
    if on_a_path(seconds <= 0).any():
        return 0.0, 0.0
    low_s, high_s = 0.0, float(seconds[np.isfinite(seconds)].max())
    while high_s - low_s > HETPIPE_BRACKET * high_s:
        middle_s = (low_s + high_s) / 2
        if on_a_path(seconds <= middle_s).any():
            high_s = middle_s
        else:
            low_s = middle_s
    return low_s, high_s


def best_stops(search: Search, seconds: Floats, low_s: float, high_s: float) -> Ints | None:
    """Stops (k,) of the cut whose slowest stage is fastest, given a :func:`bracket`; None if the budget runs out."""
    allowed = on_a_path(seconds <= high_s)
    scale_s = high_s or 1.0
    program, choices = _program(allowed, seconds / scale_s, least=low_s / scale_s)
    program.solve(highs(search, search.seconds_left, gap=HETPIPE_GAP))
    search.count("programs solved")
    taken = np.array([choice.varValue is not None and choice.varValue > 0.5 for choice in choices])
    return np.nonzero(allowed)[2][taken] if np.count_nonzero(taken) == len(seconds) else None


def on_a_path(allowed: Bools) -> Bools:
    """The runs on a path from layer 0 to layer L with one run of every stage, shape (k, L + 1, L + 1)."""
    num_stages, num_nodes, _ = allowed.shape
    reached, leading = np.zeros((2, num_stages + 1, num_nodes), dtype=bool)
    reached[0, 0] = leading[num_stages, -1] = True
    for stage in range(num_stages):
        reached[stage + 1] = allowed[stage][reached[stage]].any(axis=0)
        last = num_stages - 1 - stage
        leading[last] = allowed[last][:, leading[last + 1]].any(axis=1)
    on_path: Bools = allowed & reached[:-1, :, None] & leading[1:, None, :]
    return on_path


def _variants(problem: Problem) -> list[Variant]:
    """The variants that virtual workers can run."""
    require_schedules(problem, NAME, SCHEDULES)
    require_single_devices(problem, NAME)
    variants = [
        variant
        for variant in problem.variants
        if variant.schedule in SCHEDULES and problem.job.allows_replicas(1, variant.micro_batch)
    ]
    if not variants:
        raise UnsupportedError(
            f"solver {NAME!r} places each stage on a single device, but the job asks for more replicas; allow 1"
        )
    return variants


def _partitions(
    search: Search, tables: StageTables, variant: Variant, known: dict[_Key, WorkerPartition | None]
) -> Iterator[WorkerPartition]:
    """The best partition for every N_m while any fits; one that stays the best is not repeated.

    There is none for more devices than layers.
    """
    cluster = search.costs.of(variant.share).cluster
    if cluster.num_devices > tables.num_layers:
        return
    workers = [Worker(tables, variant, groups_host_by_host(cluster, order)) for order in class_orders(cluster)]
    depths = [int(depth) for depth in workers[0].sequence.depth]
    best: WorkerPartition | None = None
    for num_in_flight in range(1, warmup_depth(variant.schedule, len(depths), variant.num_microbatches) + 1):
        in_flight = tuple(min(num_in_flight, depth) for depth in depths)
        if best is not None and best.worker.slowest_s(best.stops, in_flight) <= best.seconds * (1 + EQUAL_PAPER_TIMES):
            # More in flight never makes another cut faster.
            continue
        key = (variant.share, variant.micro_batch, in_flight)
        if key not in known:
            known[key] = _best_partition(search, workers, in_flight)
        best = known[key]
        if best is None or search.out_of_budget:
            return
        yield best


def _best_partition(search: Search, workers: Sequence[Worker], in_flight: Sequence[int]) -> WorkerPartition | None:
    """The best over all orders of the devices; one must be 0.1 % faster to replace another."""
    brackets = [
        (*bracket(worker.seconds(in_flight)), index) for index, worker in enumerate(workers) if not search.out_of_budget
    ]
    best: WorkerPartition | None = None
    for low_s, high_s, index in sorted(brackets):
        least_s = math.inf if best is None else best.seconds * (1 - HETPIPE_BRACKET)
        if low_s >= least_s or search.out_of_budget:
            break
        worker = workers[index]
        stops = best_stops(search, worker.seconds(in_flight), low_s, high_s)
        if stops is not None and (seconds := worker.slowest_s(stops, in_flight)) < least_s:
            best = WorkerPartition(worker=worker, stops=stops, seconds=seconds)
    return best


def _program(allowed: Bools, scaled: Floats, *, least: float) -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    """The program over the allowed runs, with their `scaled` times and a lower bound of T; and the runs' variables."""
    program = pulp.LpProblem("hetpipe", pulp.LpMinimize)
    slowest = program.add_variable("T", lowBound=least)
    stage, start, stop = np.nonzero(allowed)
    choices = [program.add_variable(f"x_{run}", cat=pulp.LpBinary) for run in range(len(stage))]
    program += slowest
    for q in range(len(allowed)):
        own, following = np.flatnonzero(stage == q), np.flatnonzero(stage == q + 1)
        program += pulp.lpSum(choices[run] for run in own) == 1
        seconds = scaled[q, start[own], stop[own]].tolist()
        program += pulp.lpSum(time * choices[run] for time, run in zip(seconds, own, strict=True)) <= slowest
        for layer in np.unique(stop[own]) if len(following) else ():
            ending = (choices[run] for run in own[stop[own] == layer])
            beginning = (choices[run] for run in following[start[following] == layer])
            program += pulp.lpSum(ending) == pulp.lpSum(beginning)
    return program, choices
