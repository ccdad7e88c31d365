"""Alpa: stages on submeshes for the least latency of a pipeline, by a limit on the slowest stage.

Zheng et al.: *Alpa: Automating Inter- and Intra-Operator Parallelism for Distributed Deep Learning*, OSDI 2022.
This is its outer, inter-operator program, after the authors' published code.

**Objective.** With t_i the seconds of one micro-batch on stage i, forward and backward, and B micro-batches:

    T = sum over i of t_i  +  (B - 1) max over i of t_i.

**Submeshes** of a cluster of servers with m devices each: 2^k < m devices of one server, or n whole servers.
t(i, j, mesh, s) is the time of layers i .. j - 1 on a submesh in position s, 1 for the last stage, under the best
intra-operator plan that fits in memory with s micro-batches in flight.

**Recursion.** For a limit on the largest t_i, over positions s, first layers i and devices d,

    F(s, i, d) = min over j, mesh with t(i, j, mesh, s) <= limit of t(i, j, mesh, s) + F(s - 1, j, d - |mesh|),

and T = min over limits of min over s, d of F(s, 0, d) + (B - 1) limit. Alpa tries the times of all stages as limits in
increasing order until the limit alone makes T larger than the best one, skipping those closer than epsilon to the one
before. As F(s, 0, d) never rises with the limit, F at the upper end and (B - 1) times the lower end bound T from below
in an interval of limits. Here the interval with the least bound is halved next, until no bound is below the best T by
more than epsilon: the same T, with fewer programs.

Approximated here:

- The intra-operator plan is the fastest choice of replicas and tensor parallelism that our costs have for the devices
  of the submesh, in place of an integer program over sharded operators. Gradients are summed once per iteration; t_i
  includes that time divided by B.
- T has no transfers between stages, as in the code.
- The layers are those of the model's chain. Alpa first merges operators into fewer and larger ones.
- Alpa uses all devices, and assigns the largest submeshes first. Here devices may stay idle, as not every number of
  replicas divides a micro-batch. Several whole servers are a submesh only where all are alike.
- Alpa replicates only inside stages.
"""

import heapq
import itertools
import math
from collections.abc import Sequence

import numpy as np

from stagecut.planner.core.numerics.arrays import Bools, Floats
from stagecut.planner.core.numerics.tolerances import ALPA_LATENCY
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.solvers.papers.uniform.cluster import UniformCluster, UniformGroup, UniformStage
from stagecut.planner.solvers.papers.uniform.variants import offer_each, uniform_variants
from stagecut.planner.solvers.search.search import Search

NAME = "alpa"
OBJECTIVE = "latency, s"


def solve(problem: Problem, search: Search) -> Result:
    """Alpa's best plan for every micro-batch size and number of pipelines; proves nothing.

    Raises
    ------
    UnsupportedError
        If the job does not allow 1F1B, or no share of the cluster consists of equal servers.
    """
    offer_each(search, uniform_variants(search, NAME), _best_plan, OBJECTIVE)
    return search.result(NAME, proves=False)


def _best_plan(search: Search, variant: Variant, uniform: UniformCluster) -> tuple[Plan | None, float] | None:
    alpa = Alpa(variant, uniform)
    stages = alpa.divide(search)
    return None if stages is None else (uniform.plan_of(variant, stages), alpa.latency_s(stages))


class Alpa:
    """The dynamic program for one variant."""

    def __init__(self, variant: Variant, uniform: UniformCluster) -> None:
        self._num_microbatches = variant.num_microbatches
        self._per_server, self._num_devices = uniform.devices_per_server, uniform.num_devices
        self._num_layers = uniform.costs.problem.model.num_layers
        self._most_stages = min(self._num_layers, self._num_devices)
        meshes = [Submesh(variant, uniform, size) for size in _sizes(uniform)]
        self._meshes = [mesh for mesh in meshes if mesh.groups]

    def latency_s(self, stages: Sequence[UniformStage], slowest_s: float | None = None) -> float:
        """T of a pipeline; a lower bound of T with less than its slowest stage."""
        times_s = [stage.seconds for stage in stages]
        return sum(times_s) + (self._num_microbatches - 1) * (max(times_s) if slowest_s is None else slowest_s)

    def divide(self, search: Search) -> list[UniformStage] | None:
        """The stages with the least latency, within epsilon, or the best so far if out of budget; None if none fit."""
        best, tie = self.within(math.inf, search), itertools.count()
        if best is None:
            return None
        # No limit is below the time of any layer by itself.
        alone_s = [mesh.times_s(1).diagonal(1) for mesh in self._meshes]
        open_limits = [(0.0, next(tie), float(np.min(alone_s, axis=0).max()), best)]
        while open_limits and not search.out_of_budget:
            bound_s, _, low_s, upper = heapq.heappop(open_limits)
            if bound_s >= self.latency_s(best) * (1 - ALPA_LATENCY):
                break
            middle_s = (low_s + max(stage.seconds for stage in upper)) / 2
            for start_s, found in ((low_s, self.within(middle_s, search)), (middle_s, upper)):
                if found is not None:
                    best = min(best, found, key=self.latency_s)
                    heapq.heappush(open_limits, (self.latency_s(found, start_s), next(tie), start_s, found))
        return best

    def within(self, limit_s: float, search: Search) -> list[UniformStage] | None:
        """Stages with the least sum, none slower than a limit; None if there are none, or if out of budget.

        `least_s[s, i, d]` is F.
        """
        shape = (self._most_stages + 1, self._num_layers + 1, self._num_devices + 1)
        least_s = np.full(shape, np.inf)
        least_s[0, -1, 0] = 0.0
        for position in range(1, self._most_stages + 1):
            if search.out_of_budget:
                return None
            for mesh in self._meshes:
                self._put_before(mesh, position, limit_s, rest_s=least_s[position - 1], total_s=least_s[position])
            self._close_servers(least_s[position])
            if np.isinf(least_s[position]).all():
                break
        position, used = divmod(int(np.argmin(least_s[:, 0, :])), self._num_devices + 1)
        return None if np.isinf(least_s[position, 0, used]) else self._stages(least_s, position, used, limit_s)

    def _put_before(self, mesh: "Submesh", position: int, limit_s: float, *, rest_s: Floats, total_s: Floats) -> None:
        """Lower F of a position, `total_s`, with stages on a submesh before those of F of the next, `rest_s`.

        Both have shape (L + 1, D + 1).
        """
        quick = mesh.times_s(position) <= limit_s
        starts, stops = np.nonzero(quick)
        free_s = np.where(mesh.can_begin, rest_s, np.inf)[:, : self._num_devices + 1 - mesh.size]
        if len(starts) == 0 or np.isinf(free_s).all():
            return
        times_s = np.where(quick, mesh.times_s(position), np.inf)
        # A diagonal of `times_s` holds all stages [i, i + length); what follows them is F at i + length.
        for length in range(1, int((stops - starts).max()) + 1):
            own_s = total_s[: self._num_layers + 1 - length, mesh.size :]
            np.minimum(own_s, times_s.diagonal(length)[:, None] + free_s[length:], out=own_s)

    def _close_servers(self, total_s: Floats) -> None:
        """Let leftover devices of a server stay idle: a whole last server is as good as any used part of it."""
        for last in range(self._per_server, self._num_devices + 1, self._per_server):
            total_s[:, last] = total_s[:, last - self._per_server + 1 : last + 1].min(axis=1)

    def _stages(self, least_s: Floats, position: int, used: int, limit_s: float) -> list[UniformStage]:
        """The stages that attain a value of F, first stage first."""
        stages, start = list[UniformStage](), 0
        while position > 0:
            mesh, stop, used = self._first_stage(least_s, position, used, start, limit_s)
            seconds = float(mesh.times_s(position)[start, stop])
            stages.append(UniformStage(stop, mesh.fastest_group(start, stop, position), seconds))
            position, start = position - 1, stop
        return stages

    def _first_stage(
        self, least_s: Floats, position: int, used: int, start: int, limit_s: float
    ) -> tuple["Submesh", int, int]:
        """Submesh and stop of the first stage, and the devices used by the stages after it."""
        total_s = least_s[position, start, used]
        idle = self._per_server if used % self._per_server == 0 else 1
        for mesh, end in itertools.product(self._meshes, range(used, used - idle, -1)):
            before = end - mesh.size
            if before >= 0 and mesh.can_begin[before]:
                times_s = mesh.times_s(position)[start]
                good = (times_s <= limit_s) & (times_s + least_s[position - 1, :, before] == total_s)
                if good.any():
                    return mesh, int(np.argmax(good)), before
        raise AssertionError(f"no stage begins at layer {start}, though a suffix does")


class Submesh:
    """A number of devices for a stage, with the times of all stages on them."""

    def __init__(self, variant: Variant, uniform: UniformCluster, size: int) -> None:
        self.size = size
        groups = (group for group in uniform.groups(variant.micro_batch) if group.num_devices == size)
        self.groups = sorted(groups, key=lambda group: group.tensor_parallel)
        """Every allowed way to use all devices, most replicas first."""
        used_in_server = np.arange(uniform.num_devices + 1) % uniform.devices_per_server
        self.can_begin: Bools = (used_in_server == 0) | (used_in_server + size <= uniform.devices_per_server)
        """Whether it can come next, for every number of devices used by the stages after it, shape (D + 1,)."""
        self._num_microbatches = variant.num_microbatches
        self._intervals = {group: uniform.intervals(variant, group) for group in self.groups}
        self._times: dict[int, Floats] = {}

    def times_s(self, position: int) -> Floats:
        """Time t of every stage [start, stop) in a position on its fastest group, or infinity; shape (L + 1, L + 1)."""
        depth = min(position, self._num_microbatches)
        if depth not in self._times:
            self._times[depth] = np.min([self._group_times_s(group, depth) for group in self.groups], axis=0)
        return self._times[depth]

    def fastest_group(self, start: int, stop: int, position: int) -> UniformGroup:
        """The first group that attains t."""
        depth = min(position, self._num_microbatches)
        return min(self.groups, key=lambda group: self._group_times_s(group, depth)[start, stop])

    def _group_times_s(self, group: UniformGroup, depth: int) -> Floats:
        times = self._intervals[group].fitting(depth)
        return times.work_s + times.sync_s / self._num_microbatches


def _sizes(uniform: UniformCluster) -> list[int]:
    """Devices of each kind of submesh."""
    width = uniform.devices_per_server
    parts = itertools.takewhile(lambda size: size < width, (2**power for power in itertools.count()))
    return [*parts, *(servers * width for servers in range(1, uniform.most_servers_per_stage + 1))]
