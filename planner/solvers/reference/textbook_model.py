"""The assignment formulation that people usually write, for one variant, in PuLP.

The cluster is the share of one pipeline; all pipelines are alike. This is a deliberate second statement of
the problem: apart from the costs of stages and links, it shares nothing with the network of the other programs.

Sets
    l in 0 .. L-1           layers
    q in 1 .. Q             positions, 1 for the last stage; Q = min(L, devices)
    h                       pools: an island of one host, or m >= 2 consecutive whole hosts of a class
    o in O                  options: r replicas of tp devices of a pool; k(o) its placement, h(o) its pool
    k in K                  placements: options up to the renaming of hosts

Parameters; in the program, times are divided by `scale_s` and bytes by their largest value
    f[k,l], b[k,l]          forward and backward of a layer, one micro-batch (s); f + b with recompute
    t[k,l], t0[k]           all-reduce and optimizer step per layer, latency of the all-reduce (s)
    M, d[q]                 micro-batches; warm-up depth of a position
    alpha[h,h'], beta[h,h'] latency (s) and bandwidth (bytes/s) of the link between two pools
    e[j]                    bytes of one micro-batch over boundary j
    static[k,l], saved[k,l], limit[k]            memory (bytes)
    work[l,tp], act[l,tp]                        working and saved bytes of a layer on one of tp devices, per sample

Variables
    x[l,q] binary           layer l is in the stage of position q
    z[q,o] binary           the stage of position q runs on option o
    w[q] binary             it recomputes
    F[q], B[q], G[q] >= 0   its forward, backward, all-reduce + step (s)
    C[q], E[q] >= 0         transfer (s) and bytes between positions q + 1 and q
    cut[j,q] >= 0           boundary j lies between positions q + 1 and q
    P[q,tp], V[q,tp] >= 0   largest work, and largest act, of a layer in the stage
    G1 >= 0, T >= 0         G of the first stage; the iteration time's lower bound

Objective: min T. The constraint families are the functions of this module; those of T are the
rows busy, fill and sync of :mod:`stagecut.planner.simulator.bounds`. T grows with F, B, C and G, so that
lower bounds on these suffice. Products of binaries are replaced by big-M terms: a row that holds
only where n binaries are all one gets - bigM (n - their sum) on its right-hand side.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pulp

from stagecut.planner.core.cluster import Cluster, Link, Server
from stagecut.planner.core.job import Recompute
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.numerics.tolerances import ALMOST_ZERO, MEMORY_ROUNDING
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.schedule import warmup_depth
from stagecut.planner.cost.collectives import ring_all_reduce_s, ring_link
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.layer_times import parts
from stagecut.planner.cost.links import link_between_hosts, link_within_host
from stagecut.planner.cost.stage_costs import StageCosts


class DevicePool(NamedTuple):
    """Devices that a stage may choose from: an island of one host, or several whole hosts."""

    server_class: int
    hosts: tuple[int, ...]
    island: int


class DeviceChoice(NamedTuple):
    """Some devices of a pool."""

    pool: DevicePool
    placement: Placement


class TextbookModel:
    """Sets, parameters and variables; `program` is the PuLP problem with all constraints."""

    def __init__(self, costs: CostModel, variant: Variant) -> None:
        self.costs, self.variant = costs, variant
        self.num_layers = costs.problem.model.num_layers
        self.positions = range(1, costs.max_stages + 1)
        self.options = tuple(_options(costs.problem, costs.cluster, variant.micro_batch))
        self.pools = tuple(dict.fromkeys(option.pool for option in self.options))
        self.placements = tuple(dict.fromkeys(option.placement for option in self.options))
        self.scale_s = self._typical_s()
        self.program = pulp.LpProblem("textbook", pulp.LpMinimize)
        self.time = self._number("T")
        layers = range(self.num_layers)
        self.layer_at = {(j, q): self._binary(f"x_{j}_{q}") for j in layers for q in self.positions_of(j)}
        self.option_at = {(q, o): self._binary(f"z_{q}_{o}") for q in self.positions for o in range(len(self.options))}
        self.recompute = {q: self._binary(f"w_{q}") for q in self.positions}
        self.forward, self.backward, self.tail = map(self._numbers, ("F", "B", "G"))
        self.first_tail = self._number("G1")
        self.transfer, self.crossing = map(self._numbers, ("C", "E"))
        degrees = sorted({placement.tensor_parallel for placement in self.placements})
        self.working = {degree: self._numbers(f"P_{degree}") for degree in degrees}
        self.largest_saved = {degree: self._numbers(f"V_{degree}") for degree in degrees}
        self.program += self.time
        for family in FAMILIES:
            family(self)

    def positions_of(self, layer: int) -> range:
        """Positions a layer may have: each later stage needs a layer of its own."""
        return range(1, min(self.positions.stop, self.num_layers - layer + 1))

    def layers_at(self, position: int) -> range:
        """Layers that may have a position."""
        return range(self.num_layers - position + 1)

    def weighted(self, position: int, weights: Floats) -> pulp.LpAffineExpression:
        """Sum over layers of weight x x[l, q]."""
        return pulp.lpSum(float(weights[layer]) * self.layer_at[layer, position] for layer in self.layers_at(position))

    def on(self, position: int, where: DevicePool | Placement) -> pulp.LpAffineExpression:
        """1 where the stage runs on an option of that pool or placement."""
        return pulp.lpSum(self.option_at[position, o] for o, option in enumerate(self.options) if where in option)

    def used(self, position: int) -> pulp.LpAffineExpression:
        """1 where there are at least that many stages: the first layer is at the position or an earlier stage's."""
        return pulp.lpSum(self.layer_at[0, q] for q in self.positions_of(0) if q >= position)

    def per_layer(self, placement: Placement, *, recompute: bool) -> StageCosts:
        """Costs of every layer alone, arrays of shape (L,)."""
        layers = np.arange(self.num_layers)
        return self.costs.stages.stages(
            placement, micro_batch=self.variant.micro_batch, recompute=recompute, start=layers, stop=layers + 1
        )

    def depth(self, position: int) -> int:
        """Warm-up depth of a position."""
        return warmup_depth(self.variant.schedule, position, self.variant.num_microbatches)

    def _typical_s(self) -> float:
        """Roughly an iteration time: the whole model on its fastest placement, divided by the number of devices."""
        alone = [self.per_layer(placement, recompute=False) for placement in self.placements]
        times_s = [self.variant.num_microbatches * float(np.sum(cost.forward_s + cost.backward_s)) for cost in alone]
        positive = [time_s for time_s in times_s if time_s > 0]
        return min(positive, default=1.0) / self.costs.cluster.num_devices

    def _binary(self, name: str) -> pulp.LpVariable:
        return self.program.add_variable(name, cat=pulp.LpBinary)

    def _number(self, name: str) -> pulp.LpVariable:
        return self.program.add_variable(name, lowBound=0)

    def _numbers(self, name: str) -> dict[int, pulp.LpVariable]:
        return {q: self._number(f"{name}_{q}") for q in self.positions}


def _options(problem: Problem, cluster: Cluster, micro_batch: int) -> Iterator[DeviceChoice]:
    """Every device group with every allowed number of replicas and degree of tensor parallelism.

    Hosts of a class are alike, so they can be numbered in the order in which a plan uses them:
    several hosts of one stage are then consecutive.
    """
    for index, server in enumerate(cluster.servers):
        for host in range(server.count):
            for island, devices in enumerate(server.islands):
                pool = DevicePool(index, (host,), island)
                for replicas, degree in _splits(problem, micro_batch, devices.count):
                    placement = Placement(server_class=index, island=island, replicas=replicas, tensor_parallel=degree)
                    yield DeviceChoice(pool, placement)
        if len(server.islands) == 1:
            yield from _whole_hosts(problem, micro_batch, index, server)


def _splits(problem: Problem, micro_batch: int, most: int) -> Iterator[tuple[int, int]]:
    """Allowed replicas and degrees on at most that many devices."""
    for degree in problem.tensor_parallel_degrees:
        for replicas in range(1, most // degree + 1):
            if problem.job.allows_replicas(replicas, micro_batch):
                yield replicas, degree


def _whole_hosts(problem: Problem, micro_batch: int, server_class: int, server: Server) -> Iterator[DeviceChoice]:
    """All devices of two or more hosts; a replica stays on one host."""
    for num_hosts in range(2, server.count + 1):
        num_devices = num_hosts * server.num_devices
        for replicas, degree in _splits(problem, micro_batch, num_devices):
            if replicas * degree < num_devices or server.num_devices % degree:
                continue
            whole = Placement(
                server_class=server_class, island=0, num_hosts=num_hosts, replicas=replicas, tensor_parallel=degree
            )
            for first in range(server.count - num_hosts + 1):
                yield DeviceChoice(DevicePool(server_class, tuple(range(first, first + num_hosts)), 0), whole)


def one_position_per_layer(model: TextbookModel) -> None:
    """Sum over q of x[l,q] = 1 for every layer."""
    for layer in range(model.num_layers):
        model.program += pulp.lpSum(model.layer_at[layer, q] for q in model.positions_of(layer)) == 1


def contiguous_stages(model: TextbookModel) -> None:
    """0 <= pos[l] - pos[l+1] <= 1 with pos[l] = sum over q of q x[l,q]; pos[L-1] = 1 has no other choice."""
    position = [
        pulp.lpSum(q * model.layer_at[layer, q] for q in model.positions_of(layer)) for layer in range(model.num_layers)
    ]
    for layer in range(model.num_layers - 1):
        model.program += position[layer] - position[layer + 1] >= 0
        model.program += position[layer] - position[layer + 1] <= 1


def one_option_per_stage(model: TextbookModel) -> None:
    """Sum over o of z[q,o] = sum over q' >= q of x[0,q']: 1 for positions in use, else 0."""
    for q in model.positions:
        model.program += pulp.lpSum(model.option_at[q, o] for o in range(len(model.options))) == model.used(q)


def device_counts(model: TextbookModel) -> None:
    """For every island of every host: the sum of devices taken by all stages is at most its count."""
    for index, server in enumerate(model.costs.cluster.servers):
        for host in range(server.count):
            for island, devices in enumerate(server.islands):
                taken = [
                    option.placement.devices_per_host * model.option_at[q, o]
                    for o, option in enumerate(model.options)
                    if _touches(option.pool, index, host) and option.pool.island == island
                    for q in model.positions
                ]
                model.program += pulp.lpSum(taken) <= devices.count


def contiguous_hosts(model: TextbookModel) -> None:
    """A host, and each island of a host, holds one run of stages.

    With u[q] = sum of z[q,o] over the options on it: run[q] >= u[q] - u[q-1], sum over q of run[q] <= 1.
    """
    for index, server in enumerate(model.costs.cluster.servers):
        for host in range(server.count):
            inside = [pool for pool in model.pools if _touches(pool, index, host)]
            _one_run(model, inside, f"{index}_{host}")
            if len(server.islands) > 1:
                for pool in inside:
                    _one_run(model, [pool], f"{index}_{host}_{pool.island}")


def stage_times(model: TextbookModel) -> None:
    """Times of a stage on the placement it runs on.

    F[q] >= sum over l of f[k,l] x[l,q] - bigM (1 - on[q,k]), on[q,k] = sum of z[q,o] over k(o) = k;
    B[q] >= sum of b[k,l] x[l,q] - bigM (1 - on[q,k]);
    B[q] >= sum of (f + b)[k,l] x[l,q] - bigM (2 - on[q,k] - w[q]).
    """
    for placement in model.placements:
        plain = model.per_layer(placement, recompute=False)
        again = model.per_layer(placement, recompute=True)
        for q in model.positions:
            on = model.on(q, placement)
            _at_least(model, model.forward[q], q, plain.forward_s / model.scale_s, off=1 - on)
            _at_least(model, model.backward[q], q, plain.backward_s / model.scale_s, off=1 - on)
            off = 2 - on - model.recompute[q]
            _at_least(model, model.backward[q], q, again.backward_s / model.scale_s, off=off)


def recompute_modes(model: TextbookModel) -> None:
    """w[q] = 0 if the job never recomputes, 1 if always; free with `auto`, where recomputing only raises T."""
    mode = model.costs.problem.job.recompute
    if mode is not Recompute.AUTO:
        for q in model.positions:
            model.program += model.recompute[q] == (1 if mode is Recompute.ALWAYS else 0)


def tails(model: TextbookModel) -> None:
    """All-reduce and optimizer step, and those of the first stage.

    G[q] >= t0[k] + sum over l of t[k,l] x[l,q] - bigM (1 - on[q,k]);  G1 >= G[q] - bigM (1 - x[0,q]).
    """
    largest = 0.0
    for placement in model.placements:
        latency_s = _all_reduce_latency_s(model.costs, placement) / model.scale_s
        alone = model.per_layer(placement, recompute=False)
        per_layer = (alone.sync_s + alone.update_s) / model.scale_s - latency_s
        largest = max(largest, latency_s + float(per_layer.sum()))
        for q in model.positions:
            off = 1 - model.on(q, placement)
            _at_least(model, model.tail[q], q, per_layer, constant=latency_s, off=off)
    for q in model.positions_of(0):
        model.program += model.first_tail >= model.tail[q] - largest * (1 - model.layer_at[0, q])


def crossing_bytes(model: TextbookModel) -> None:
    """E[q] = sum over j of e[j] cut[j,q], as a share of max e;  cut[j,q] >= x[j-1,q+1] + x[j,q] - 1."""
    crossing = model.costs.problem.model.boundary_bytes()
    shares = crossing / max(float(crossing.max()), ALMOST_ZERO)
    for q in model.positions[:-1]:
        cuts = []
        for j in range(1, model.num_layers):
            if q + 1 not in model.positions_of(j - 1) or q not in model.positions_of(j):
                continue
            cut = model.program.add_variable(f"cut_{j}_{q}", lowBound=0)
            model.program += cut >= model.layer_at[j - 1, q + 1] + model.layer_at[j, q] - 1
            cuts.append(float(shares[j]) * cut)
        model.program += model.crossing[q] >= pulp.lpSum(cuts)


def transfers(model: TextbookModel) -> None:
    """C[q] >= alpha[h,h'] + E[q] / beta[h,h'] - bigM (2 - at[q+1,h] - at[q,h']).

    at[q,h] = sum of z[q,o] over h(o) = h.
    """
    largest_bytes = model.variant.micro_batch * float(model.costs.problem.model.boundary_bytes().max())
    for sender in model.pools:
        for receiver in model.pools:
            link = _link(model.costs.cluster, sender, receiver)
            if link is None:
                continue
            latency_s = link.latency_s / model.scale_s
            largest_s = largest_bytes / link.bandwidth_bytes_per_s / model.scale_s
            if latency_s + largest_s == 0:
                continue
            for q in model.positions[:-1]:
                off = 2 - model.on(q + 1, sender) - model.on(q, receiver)
                needed = latency_s + largest_s * model.crossing[q]
                model.program += model.transfer[q] >= needed - (latency_s + largest_s) * off


def memory(model: TextbookModel) -> None:
    """What a stage keeps fits on its devices, without and with recomputation.

    P[q,tp] >= work[l,tp] x[l,q], V[q,tp] >= act[l,tp] x[l,q] for every layer; with tp and samples those of k,
    sum over l of (static + d[q] saved)[k,l] x[l,q] + samples (P[q,tp] (+ V[q,tp] with recompute))
    <= limit[k] + bigM x (1 - on[q,k] + w[q])  or, with recompute,  (2 - on[q,k] - w[q]).
    """
    for q in model.positions:
        for degree in model.working:
            _peak(model, model.working[degree][q], q, _per_sample(model, "working_bytes", degree))
            _peak(model, model.largest_saved[degree][q], q, _per_sample(model, "saved_bytes", degree))
        for placement in model.placements:
            on = model.on(q, placement)
            _fits(model, q, placement, recompute=False, off=1 - on + model.recompute[q])
            _fits(model, q, placement, recompute=True, off=2 - on - model.recompute[q])


def busy(model: TextbookModel) -> None:
    """T >= sum over earlier stages of (F + B + 2 C) + M (F[q] + B[q]) + G1."""
    for q in model.positions:
        before = _earlier(model, q, backwards=True)
        work = model.variant.num_microbatches * (model.forward[q] + model.backward[q])
        model.program += model.time >= before + work + model.first_tail


def fill(model: TextbookModel) -> None:
    """T >= sum over all stages of (F + B + 2 C) + (M - 1)(F[q] + B[q]) - (d[q] - 1) F[q] + G1."""
    total = _earlier(model, 0, backwards=True)
    for q in model.positions:
        later = (model.variant.num_microbatches - 1) * (model.forward[q] + model.backward[q])
        warm_up = (model.depth(q) - 1) * model.forward[q]
        model.program += model.time >= total + later - warm_up + model.first_tail


def sync(model: TextbookModel) -> None:
    """T >= sum over earlier stages of (F + C) + M (F[q] + B[q]) + G[q]."""
    for q in model.positions:
        before = _earlier(model, q, backwards=False)
        work = model.variant.num_microbatches * (model.forward[q] + model.backward[q])
        model.program += model.time >= before + work + model.tail[q]


FAMILIES = (
    one_position_per_layer,
    contiguous_stages,
    one_option_per_stage,
    device_counts,
    contiguous_hosts,
    stage_times,
    recompute_modes,
    tails,
    crossing_bytes,
    transfers,
    memory,
    busy,
    fill,
    sync,
)


def _touches(pool: DevicePool, server_class: int, host: int) -> bool:
    return pool.server_class == server_class and host in pool.hosts


def _one_run(model: TextbookModel, pools: list[DevicePool], name: str) -> None:
    before = pulp.lpSum([])
    runs = []
    for q in model.positions:
        here = pulp.lpSum(model.on(q, pool) for pool in pools)
        run = model.program.add_variable(f"run_{name}_{q}", lowBound=0)
        model.program += run >= here - before
        runs.append(run)
        before = here
    model.program += pulp.lpSum(runs) <= 1


def _at_least(
    model: TextbookModel,
    value: pulp.LpVariable,
    position: int,
    per_layer: Floats,
    *,
    off: pulp.LpAffineExpression,
    constant: float = 0.0,
) -> None:
    """Value >= constant + sum of per_layer x[l,q] - bigM x off."""
    largest = constant + float(per_layer.sum())
    if largest > 0:
        model.program += value >= constant + model.weighted(position, per_layer) - largest * off


def _fits(
    model: TextbookModel, position: int, placement: Placement, *, recompute: bool, off: pulp.LpAffineExpression
) -> None:
    limit_bytes = model.costs.stages.device_type(placement).memory_bytes * (1 + MEMORY_ROUNDING)
    degree, samples = placement.tensor_parallel, model.variant.micro_batch / placement.replicas
    stage = model.per_layer(placement, recompute=recompute)
    kept = stage.static_bytes + model.depth(position) * stage.saved_bytes
    working_bytes = samples * float(_per_sample(model, "working_bytes", degree).max())
    again_bytes = samples * float(_per_sample(model, "saved_bytes", degree).max()) if recompute else 0.0
    largest_bytes = float(kept.sum()) + working_bytes + again_bytes
    if largest_bytes <= limit_bytes:
        return
    peak = working_bytes / limit_bytes * model.working[degree][position]
    peak += again_bytes / limit_bytes * model.largest_saved[degree][position]
    needed = model.weighted(position, kept / limit_bytes) + peak
    model.program += needed <= 1 + (largest_bytes / limit_bytes - 1) * off


def _per_sample(model: TextbookModel, field: str, degree: int) -> Floats:
    """Bytes of every layer on one of `degree` devices, shape (L,)."""
    profile = model.costs.problem.model
    return np.array([getattr(layer, field) for layer in profile.layers]) / parts(profile, degree)


def _peak(model: TextbookModel, peak: pulp.LpVariable, position: int, values: Floats) -> None:
    """Peak >= value[l] x[l,q] for every layer, as a share of the largest value."""
    largest = float(values.max())
    for layer in model.layers_at(position):
        if values[layer] > 0:
            model.program += peak >= float(values[layer]) / largest * model.layer_at[layer, position]


def _all_reduce_latency_s(costs: CostModel, placement: Placement) -> float:
    """Latency of the all-reduce over the replicas of all pipelines."""
    ranks = placement.replicas * costs.share.num_pipelines
    return float(ring_all_reduce_s(np.zeros(1), ranks, ring_link(costs.cluster, placement, costs.share))[0])


def _link(cluster: Cluster, sender: DevicePool, receiver: DevicePool) -> Link | None:
    """None where the two cannot follow one another."""
    if sender.server_class != receiver.server_class or not set(sender.hosts) & set(receiver.hosts):
        return link_between_hosts(
            cluster, (sender.server_class, len(sender.hosts)), (receiver.server_class, len(receiver.hosts))
        )
    if len(sender.hosts) == len(receiver.hosts) == 1:
        return link_within_host(cluster, sender.server_class, sender.island, receiver.island)
    return None


def _earlier(model: TextbookModel, position: int, *, backwards: bool) -> pulp.LpAffineExpression:
    """Sum of F + C, or of F + B + 2 C, over the stages before a position, their transfers included."""
    stages = [model.forward[q] + (model.backward[q] if backwards else 0) for q in model.positions if q > position]
    crossings = [(2 if backwards else 1) * model.transfer[q] for q in model.positions if q >= position]
    return pulp.lpSum([*stages, *crossings])
