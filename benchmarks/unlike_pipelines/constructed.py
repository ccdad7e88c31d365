"""Synchronous plans of unlike pipelines, made by hand: groups of devices with plans of their own, and shares that fit.

The devices are divided into groups (:mod:`benchmarks.unlike_pipelines.groupings`), and each group plans its share of
the samples on its devices as if they were the cluster. Samples are moved from the slowest group to others while that
helps. An iteration takes as long as the slowest group plus the all-reduce between the groups.

**The all-reduce between groups** follows that within them; nothing of either overlaps with other work. Every layer has
gradients in each of G groups. First those on one host are summed over its fabric, then the hosts that hold a layer for
a group each send a part of it round a ring of the groups: 2 (G - 1) steps of 1 / G, twice. The busiest host and the
slowest path between any two decide.
"""

import time
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd, prod

import numpy as np

from benchmarks.unlike_pipelines.groupings import Group, Grouping, groupings, pieces_by_host, sub_cluster
from benchmarks.unlike_pipelines.shares import Shares, near_shares
from stagecut.planner.core.cluster import Link
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.numerics.arrays import Bools, Floats, Ints
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.links import link_between_hosts
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions

KEPT = 2
"""Groupings whose shares are refined, the fastest at first sight."""
GREEDY_S, MILP_S = 4.0, 20.0
"""Time limits of one group's plan: while shares are moved, and at the end."""
LARGE_BYTES = 1e9
"""Links are compared by a message of this size."""
MOVING_S = 60.0
"""After so long no more samples are moved."""
GAP = 0.005
NUM_RATED = 3
"""Builds of each grouping at first sight."""
NUM_NEAR = 10
"""Shares near those by rate that are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """The plan of a group on its own."""

    seconds: float
    """Infinite if none was found."""
    plan: Plan | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Constructed:
    """Groups, their shares of the samples and their plans."""

    grouping: Grouping
    shares: Shares
    plans: Mapping[Group, GroupPlan]
    sync_s: float
    """All-reduce between the groups."""

    @property
    def rates(self) -> dict[Group, float]:
        """Samples per second of each group."""
        return {group: samples / self.plans[group].seconds for group, samples in self.shares.items()}

    @property
    def seconds(self) -> float:
        """Iteration time."""
        return max(plan.seconds for plan in self.plans.values()) + self.sync_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Layers that a host holds for all groups."""

    server_class: int
    share: float
    """Of the interface."""
    num_bytes: Floats
    """Gradients that it sends of each layer, shape (L,)."""
    num_groups: Ints
    """Groups that hold each layer on it, shape (L,)."""

    @classmethod
    def empty(cls, num_layers: int, server_class: int, share: float) -> "Held":
        """No layers."""
        return cls(
            server_class=server_class,
            share=share,
            num_bytes=np.zeros(num_layers),
            num_groups=np.zeros(num_layers, dtype=int),
        )

    def step_s(self, link: Link, layers: Bools, num_groups: int) -> float:
        """A step of a ring of the groups over some layers."""
        return link.transfer_s(float(self.num_bytes[layers].sum()) / num_groups)


class Builder:
    """Builds plans of unlike pipelines for one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        per_byte = problem.job.optimizer.gradient_bytes / problem.model.precision.num_bytes
        sizes = [layer.params_bytes + layer.shared_params_bytes for layer in problem.model.layers]
        self._gradient_bytes = per_byte * np.array(sizes)
        self._plans: dict[tuple[Group, int], GroupPlan] = {}
        self._choices: dict[tuple[Group, int], int] = {}

    def best(self) -> Constructed | None:
        """The best plan found; None if no grouping has one."""
        firsts = sorted((found for each in self._groupings() if (found := self._first(each))), key=_seconds)
        refined = sorted(map(self._refined, firsts[:KEPT]), key=_seconds)
        return self._finished(refined[0]) if refined else None

    def _groupings(self) -> Iterator[Grouping]:
        return iter(groupings(self.problem.cluster))

    def _first(self, grouping: Grouping) -> Constructed | None:
        """Shares in proportion to the groups' rates, first as if all devices were alike."""
        rates = {group: float(_num_devices(group)) for group in grouping}
        found: list[Constructed] = []
        for _ in range(NUM_RATED):
            near = self._near(grouping, rates)
            if not near:
                break
            built = self.build(grouping, near[0])
            if built.seconds == float("inf"):
                break
            found.append(built)
            rates = built.rates
        return min(found, key=_seconds, default=None)

    def _near(self, grouping: Grouping, rates: Mapping[Group, float]) -> list[Shares]:
        """Shares nearly in proportion to rates, those first with which the groups have most choices."""
        shares = near_shares(grouping, rates, self.problem.job.global_batch)
        return sorted(shares, key=lambda each: -prod(self._num_choices(*group) for group in each.items()))

    def _num_choices(self, group: Group, samples: int) -> int:
        """Ways to divide samples over pipelines and micro-batches."""
        if (group, samples) not in self._choices:
            problem = self._part(group, samples)
            self._choices[group, samples] = 0 if problem is None else len(problem.variants)
        return self._choices[group, samples]

    def _refined(self, built: Constructed) -> Constructed:
        """Samples are moved from the slowest groups to others, ever fewer at a time."""
        near = self._near(built.grouping, built.rates)[:NUM_NEAR]
        built = min((built, *(self.build(built.grouping, shares) for shares in near)), key=_seconds)
        size = max(1, self.problem.job.global_batch // (8 * len(built.grouping)))
        ends = time.perf_counter() + MOVING_S
        while size >= 1 and time.perf_counter() < ends:
            others = [self.build(built.grouping, shares) for shares in _moves(built, size)]
            moved = min(others, key=_seconds, default=built)
            if moved.seconds < built.seconds:
                built = moved
            else:
                size //= 2
        return built

    def _finished(self, built: Constructed) -> Constructed:
        """The same shares, with better plans where a longer search finds some."""
        better = {}
        for group, samples in built.shares.items():
            found = self._solved(group, samples, "milp", MILP_S)
            better[group] = min(found, built.plans[group], key=lambda plan: plan.seconds)
        return self._with_sync(replace(built, plans=better))

    def build(self, grouping: Grouping, shares: Shares) -> Constructed:
        """The plan with these shares; infinitely slow if a group has none."""
        plans = {group: self._plan(group, samples) for group, samples in shares.items()}
        return self._with_sync(Constructed(grouping=grouping, shares=shares, plans=plans, sync_s=0.0))

    def _plan(self, group: Group, samples: int) -> GroupPlan:
        key = group, samples
        if key not in self._plans:
            self._plans[key] = self._solved(group, samples, "greedy", GREEDY_S)
        return self._plans[key]

    def _solved(self, group: Group, samples: int, solver: str, time_limit_s: float) -> GroupPlan:
        problem = self._part(group, samples)
        if problem is None:
            return GroupPlan(seconds=float("inf"), plan=None)
        result = run(problem, solver, SolveOptions(gap=GAP, time_limit_s=time_limit_s))
        seconds = float("inf") if result.objective_s is None else result.objective_s
        return GroupPlan(seconds=seconds, plan=result.plan)

    def _part(self, group: Group, samples: int) -> Problem | None:
        """The problem of one group; None if nothing divides its samples."""
        cluster, job = sub_cluster(self.problem.cluster, group), self.problem.job
        try:
            return replace(self.problem, cluster=cluster, job=replace(job, global_batch=samples))
        except BadInputError:
            return None

    def _with_sync(self, built: Constructed) -> Constructed:
        return replace(built, sync_s=self._sync_s(built))

    def _sync_s(self, built: Constructed) -> float:
        """Seconds of the all-reduce between the groups; see the module."""
        num_groups, cluster = len(built.grouping), self.problem.cluster
        if num_groups == 1 or built.seconds == float("inf"):
            return 0.0
        held = self._held(built)
        between = np.sum([each.num_bytes > 0 for each in held.values()], axis=0) > 1
        classes = {each.server_class for each in held.values()}
        paths = [link_between_hosts(cluster, (a, 1), (b, 1)) for a in classes for b in classes]
        slowest = max(paths, key=lambda link: link.transfer_s(LARGE_BYTES))
        step_s = 0.0
        if between.any():
            step_s += max(each.step_s(slowest.scaled(each.share), between, num_groups) for each in held.values())
        inside = [each for each in held.values() if (each.num_groups > 1).any()]
        if inside:
            step_s += max(own.step_s(self._fabric(own, num_groups), own.num_groups > 1, num_groups) for own in inside)
        return 2 * (num_groups - 1) * step_s

    def _fabric(self, held: Held, num_groups: int) -> Link:
        """The fabric of a host while all groups use it."""
        island = self.problem.cluster.servers[held.server_class].islands[0]
        return island.fabric.scaled(over=num_groups) if island.shared else island.fabric

    def _held(self, built: Constructed) -> dict[Hashable, Held]:
        """What every host holds. A host whose class has no other is known to be the same in all groups."""
        cluster, found = self.problem.cluster, dict[Hashable, Held]()
        for number, group in enumerate(built.grouping):
            plan, pieces = built.plans[group].plan, pieces_by_host(cluster, group)
            if plan is None:
                continue
            for index, stage in enumerate(plan.stages):
                layers = slice(stage.start, stage.stop)
                hosts = _hosts(plan, index)
                for host in hosts:
                    server_class, devices = pieces[host]
                    server = cluster.servers[server_class]
                    alone = server.count == 1
                    share = 1.0 if alone else devices / server.num_devices
                    key: Hashable = server_class if alone else (number, host)
                    own = found.setdefault(key, Held.empty(len(self._gradient_bytes), server_class, share))
                    own.num_bytes[layers] = np.maximum(own.num_bytes[layers], self._gradient_bytes[layers] / len(hosts))
                    own.num_groups[layers] += 1
        return found


def _moves(built: Constructed, size: int) -> Iterator[Shares]:
    """Shares after samples of the slowest groups went to one other kind of group."""
    numbers = Counter(built.grouping)
    slowest = max(built.plans, key=lambda group: built.plans[group].seconds)
    for other in built.plans:
        if other != slowest:
            common = gcd(numbers[slowest], numbers[other])
            less, more = size * numbers[other] // common, size * numbers[slowest] // common
            if built.shares[slowest] > less:
                yield {
                    **built.shares,
                    slowest: built.shares[slowest] - less,
                    other: built.shares[other] + more,
                }


def _hosts(plan: Plan, index: int) -> set[str]:
    """Hosts of a stage in all pipelines."""
    copies = (pipeline.stages[index].devices for pipeline in plan.pipelines)
    return {device.partition("/")[0] for devices in copies for device in devices}


def _seconds(built: Constructed) -> float:
    return built.seconds


def _num_devices(group: Group) -> int:
    return sum(devices for _, devices in group)
