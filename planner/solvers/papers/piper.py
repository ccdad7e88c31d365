"""Piper: the least time per sample by data, tensor and pipeline parallelism and recomputation together.

Tarnawski, Narayanan, Phanishayee: *Piper: Multidimensional Planner for DNN Parallelization*, NeurIPS 2021; formulas as
in the authors' published code.

**Objective.** A stage of the layers S has d replicas (data parallelism) of t devices (tensor parallelism). With N
micro-batches per iteration its load, in seconds per micro-batch, is

    load(S, t, d, y) = [ sum over cut edges 2 bytes / d  +  sum over S of 4 (d - 1) w / (d N) ] / bandwidth
                       + sum over S of p / d,

where w are the bytes of a layer's weights, p its seconds and *bandwidth* is the same between any two devices. The time
per sample is the largest load of a stage over the samples of a micro-batch. A stage keeps y = ceil(s / d)
micro-batches, where s counts the replicas of this and all later stages, and the sum over S of a y + b must fit in
memory. Cut edges have exactly one end in S. A tensor has an edge to each layer that uses it, as if it were sent to
each; a tensor that only passes through a stage costs it nothing. b includes what a layer needs while it runs, as if all
ran at once.

**Inner choice.** Each layer has configurations with different p, a and b, here with and without recomputation. The
fastest one is taken everywhere; then the layers that free the most of their a y + b for each second they lose are
swapped, one after another, until the stage fits.

**Recursion** over the downsets D of the model's graph, which in a chain are its suffixes, devices k and replicas s:

    dp[D][k][s] = min over D' in D, t, d of max( dp[D'][k - d t][s - d], load(D - D', t, d, ceil(s / d)) ).

It is solved the other way round: for a limit of the load, the fewest devices k[D][s] for which the recursion stays
within it; bisection finds the least limit for which the cluster has enough devices.

Approximated here:

- All links have the bandwidth of the slowest between two devices; its latency is ignored.
- In Piper a replica takes every d-th micro-batch, so d divides N, and p, a and b are those of a whole micro-batch. That
  load and that memory are kept, though in the plan each replica computes its part of every micro-batch, so that d
  divides the samples of one. y is Piper's, but never above N.
- All-reduces among the t devices are part of p, from our cost model, which gives a and b of single layers too.
- In the plan whole stages recompute or do not, as the job says; Piper chooses for each layer. Where the plan does not
  fit, Piper is told of less memory.
- A stage has part of a server or several whole ones, the latter only where all servers are alike.
- Identical pipelines are stages of equal d to Piper. For each number P of them, gradients are summed over d P replicas
  and the samples of all of them counted; for each size the plan with the least time per sample is kept.
- Among plans with the same load, one with the fewest replicas is taken.
"""

import math
import sys
from collections.abc import Sequence

import numpy as np

from stagecut.planner.core.job import Recompute
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.tolerances import PIPER_LOAD
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.cost.layer_times import parts
from stagecut.planner.cost.stage_costs import StageCosts
from stagecut.planner.solvers.papers.uniform.cluster import UniformCluster, UniformGroup, UniformStage
from stagecut.planner.solvers.papers.uniform.intervals import held_weight_bytes, interval_sums
from stagecut.planner.solvers.papers.uniform.variants import offer_least, uniform_variants
from stagecut.planner.solvers.search.search import Search

NAME = "piper"
OBJECTIVE = "time per sample, s"
MEMORY_FRACTIONS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Fractions of the memory that Piper is told of, in turn, until its plan fits by our cost model.

With only the first one, 8 of 8 plans are the same; the others are for layers that recompute in part of a stage."""


def solve(problem: Problem, search: Search) -> Result:
    """Piper's best plan for every micro-batch size; the simulator picks; proves nothing.

    Raises
    ------
    UnsupportedError
        If the job does not allow 1F1B, or no share of the cluster consists of equal servers.
    """
    offer_least(search, uniform_variants(search, NAME), _plan_that_fits, OBJECTIVE)
    return search.result(NAME, proves=False)


def _plan_that_fits(search: Search, variant: Variant, uniform: UniformCluster) -> tuple[Plan, float] | None:
    """The first plan that fits in memory, as Piper is told of less and less, and its time per sample."""
    for part in MEMORY_FRACTIONS:
        stages = Piper(variant, uniform, memory_bytes=part * uniform.memory_bytes).divide(search)
        if stages is None:
            return None
        if plan := uniform.plan_of(variant, stages):
            return plan, largest_load_s(stages) / (variant.micro_batch * variant.share.num_pipelines)
    return None


def largest_load_s(stages: Sequence[UniformStage]) -> float:
    """Largest load of a stage, per micro-batch."""
    return max(stage.seconds for stage in stages)


class Piper:
    """The dynamic program for one variant."""

    def __init__(self, variant: Variant, uniform: UniformCluster, *, memory_bytes: float) -> None:
        self.num_layers = uniform.costs.problem.model.num_layers
        self.num_devices, self._per_server = uniform.num_devices, uniform.devices_per_server
        self._too_many = self.num_devices + 1
        self._options = [
            GroupLoads(variant, uniform, group, memory_bytes=memory_bytes) for group in _groups(variant, uniform)
        ]

    def divide(self, search: Search) -> list[UniformStage] | None:
        """The stages with the least load, or the best so far if out of budget; None if none fit."""
        best, low_s = self.within(sys.float_info.max), 0.0
        while best is not None and not search.out_of_budget:
            high_s = largest_load_s(best)
            if high_s <= low_s * (1 + PIPER_LOAD):
                break
            middle_s = (low_s + high_s) / 2
            better = self.within(middle_s)
            best, low_s = (best, middle_s) if better is None else (better, low_s)
        return best

    def within(self, limit_s: float) -> list[UniformStage] | None:
        """Stages with no load above a limit; None if there are none.

        `fewest[s, i]` is k: the fewest devices for the layers from i on, with s replicas in all stages.
        """
        fewest = np.full((self.num_devices + 1, self.num_layers + 1), self._too_many)
        fewest[0, -1] = 0
        for replicas in range(1, self.num_devices + 1):
            own = fewest[replicas, :-1]
            for option in self._options:
                taken = self._taken(fewest, replicas, option)
                if taken is not None:
                    good = option.load_s(replicas)[:-1] <= limit_s
                    np.minimum(own, np.where(good, taken, self._too_many).min(axis=1), out=own)
            if own[0] < self._too_many:
                return self._stages(fewest, replicas, limit_s)
        return None

    def _taken(self, fewest: Ints, replicas: int, option: "GroupLoads") -> Ints | None:
        """Devices of an option and of the stages after it, which begin at each layer, shape (L + 1,).

        `replicas` counts those of all these stages. None if there are never enough devices.
        """
        before = replicas - option.group.replicas
        if before < 0 or fewest[before].min() == self._too_many:
            return None
        used, size, width = fewest[before], option.group.num_devices, self._per_server
        begin = np.where(used % width + size <= width, used, -(-used // width) * width)
        taken: Ints = np.minimum(begin + size, self._too_many)
        return taken

    def _stages(self, fewest: Ints, replicas: int, limit_s: float) -> list[UniformStage]:
        """Stages that take the fewest devices, the first one as short as possible, then the second, and so on."""
        stages, start = list[UniformStage](), 0
        while start < self.num_layers:
            stages.append(self._first_stage(fewest, replicas, limit_s, start))
            replicas, start = replicas - stages[-1].group.replicas, stages[-1].stop
        return stages

    def _first_stage(self, fewest: Ints, replicas: int, limit_s: float, start: int) -> UniformStage:
        for option in self._options:
            taken = self._taken(fewest, replicas, option)
            if taken is not None:
                load_s = option.load_s(replicas)[start]
                good = np.flatnonzero((load_s <= limit_s) & (taken == fewest[replicas, start]))
                if len(good):
                    return UniformStage(int(good[0]), option.group, float(load_s[good[0]]))
        raise AssertionError(f"no stage begins at layer {start}, though a suffix does")


class GroupLoads:
    """A device group, with the loads of all stages [i, j) on such a group; tables have the shape (L + 1, L + 1)."""

    def __init__(self, variant: Variant, uniform: UniformCluster, group: UniformGroup, *, memory_bytes: float) -> None:
        self.group = group
        self._variant, self._uniform, self._limit_bytes = variant, uniform, memory_bytes
        layers = np.arange(uniform.costs.problem.model.num_layers)
        size = variant.micro_batch * group.replicas
        # With a whole micro-batch on each replica.
        self._plain, self._recomputing = (
            uniform.stage_costs(group, micro_batch=size, recompute=mode, start=layers, stop=layers + 1)
            for mode in (False, True)
        )
        self._communication_s = self._communication()
        self._loads: dict[int, Floats] = {}

    def load_s(self, replicas: int) -> Floats:
        """Seconds per micro-batch of all stages, infinite where they do not fit or are empty.

        `replicas` counts those of a stage and of all stages after it.
        """
        kept = min(math.ceil(replicas / self.group.replicas), self._variant.num_microbatches)
        if kept not in self._loads:
            load_s = self._communication_s + self._compute_s(kept)
            load_s[np.tril_indices(len(load_s))] = np.inf
            self._loads[kept] = load_s
        return self._loads[kept]

    def _compute_s(self, kept: int) -> Floats:
        """Sum of p over the layers, each in the configuration chosen if `kept` micro-batches are kept."""
        policy = self._uniform.costs.problem.job.recompute
        first = self._recomputing if policy is Recompute.ALWAYS else self._plain
        own_s, first_bytes = self._seconds(first), _bytes(first, kept)
        first_s, excess_bytes = interval_sums(own_s), interval_sums(first_bytes) - self._limit_bytes
        fits = excess_bytes <= 0
        if policy is not Recompute.AUTO or fits.all():
            return np.where(fits, first_s, np.inf)
        lost_s, freed_bytes = self._seconds(self._recomputing) - own_s, first_bytes - _bytes(self._recomputing, kept)
        return np.where(fits, first_s, first_s + swapped_s(lost_s, freed_bytes, excess_bytes))

    def _seconds(self, costs: StageCosts) -> Floats:
        """The seconds p / d of every layer, shape (L,)."""
        return (costs.forward_s + costs.backward_s) / self.group.replicas

    def _communication(self) -> Floats:
        """Activations and gradients over both ends, and the share of one micro-batch in summing gradients."""
        variant, uniform = self._variant, self._uniform
        model, job = uniform.costs.problem.model, uniform.costs.problem.job
        cut_bytes = 2 * variant.micro_batch * _cut_bytes(model) / self.group.replicas
        params = held_weight_bytes(model) / parts(model, self.group.tensor_parallel) / model.precision.num_bytes
        weight_bytes = interval_sums(params) * job.optimizer.gradient_bytes
        holders = self.group.replicas * variant.share.num_pipelines
        sync_bytes = 4 * (holders - 1) / holders * weight_bytes / variant.num_microbatches
        slowest = min(link.large_message_bytes_per_s for link in (uniform.inside, uniform.between))
        return (cut_bytes + sync_bytes) / slowest


def _bytes(costs: StageCosts, kept: int) -> Floats:
    """The sum a y + b of every layer with y = `kept` micro-batches, shape (L,)."""
    return kept * costs.saved_bytes + (costs.static_bytes + costs.working_bytes)


def swapped_s(lost_s: Floats, freed_bytes: Floats, needed_bytes: Floats) -> Floats:
    """Seconds that each stage loses until the bytes it needs are free; infinite if all its layers free too few.

    Layers recompute rather than keep what they saved, those that free the most per second lost first. The seconds lost
    and bytes freed are per layer, shape (L,); the bytes needed per stage, shape (L + 1, L + 1).
    """
    helpful = np.flatnonzero(freed_bytes > 0)
    order = helpful[np.argsort(lost_s[helpful] / freed_bytes[helpful], kind="stable")]
    chosen = np.zeros((len(order) + 1, len(lost_s) + 1))
    for count, layer in enumerate(order, start=1):
        chosen[count:, layer + 1] = 1.0
    # Prefix sums over the layers; row n has the first n layers of the order swapped.
    all_lost_s = np.cumsum(chosen * np.concatenate(([0.0], lost_s)), axis=1)
    all_freed_bytes = np.cumsum(chosen * np.concatenate(([0.0], freed_bytes)), axis=1)
    # Bisection for the fewest layers to swap, for all stages at once: the bytes freed rise with their number.
    low, high = np.zeros(needed_bytes.shape, dtype=int), np.full(needed_bytes.shape, len(order))
    for _ in range(len(order).bit_length()):
        middle = (low + high) // 2
        enough = _of_stages(all_freed_bytes, middle) >= needed_bytes
        low, high = np.where(enough, low, np.minimum(middle + 1, high)), np.where(enough, middle, high)
    enough = _of_stages(all_freed_bytes, high) >= needed_bytes
    return np.where(enough, _of_stages(all_lost_s, high), np.inf)


def _of_stages(prefix_sums: Floats, row: Ints) -> Floats:
    """Sums over the layers of each stage, each from a row of its own."""
    start, stop = np.ogrid[: row.shape[0], : row.shape[1]]
    return prefix_sums[row, stop] - prefix_sums[row, start]


def _cut_bytes(model: ModelProfile) -> Floats:
    """Bytes per sample of the edges with exactly one end in each stage."""
    start, stop = np.ogrid[: model.num_layers + 1, : model.num_layers + 1]
    outputs = np.array([0.0, *(layer.output_bytes for layer in model.layers[:-1]), 0.0])
    cut: Floats = outputs[start] + outputs[stop]
    for edge in model.skip_edges:
        before = np.searchsorted(edge.targets, np.arange(model.num_layers + 1))
        inside, behind = before[stop] - before[start], len(edge.targets) - before[stop]
        made_inside = (start <= edge.source) & (edge.source < stop)
        cut = cut + edge.num_bytes * np.where(made_inside, behind, inside)
    return cut


def _groups(variant: Variant, uniform: UniformCluster) -> list[UniformGroup]:
    """Every group that is part of a server, or whole servers where all are alike; small ones first."""
    most = uniform.devices_per_server * uniform.most_servers_per_stage
    groups = (group for group in uniform.groups(variant.micro_batch) if group.num_devices <= most)
    return sorted(groups, key=lambda group: (group.num_devices, group.tensor_parallel))
