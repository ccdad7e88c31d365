"""Synchronous plans of unlike pipelines, made by hand: groups of hosts with plans of their own, and shares that fit.

The hosts are divided into groups (:mod:`benchmarks.unlike_pipelines.groupings`), and each group plans its share of the
samples on its hosts as if they were the cluster. Shares are moved from the slowest group to others while that helps.
An iteration takes as long as the slowest group plus the all-reduce between the groups.

**The all-reduce between groups** follows that within them. Every layer has gradients in each of G groups; the hosts of
a group that hold a layer send equal parts of it round a ring of the groups, 2 (G - 1) steps of 1 / G. A host sends for
all layers that it holds; the busiest one over the slowest path between any two groups decides. Nothing of it overlaps
with the groups' own work.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import gcd, prod

from benchmarks.unlike_pipelines.groupings import Counts, Grouping, groupings, sub_cluster
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.links import link_between_hosts
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions

Shares = Mapping[Counts, int]
"""Samples of every group with these hosts."""
KEPT = 2
"""Groupings whose shares are refined, the fastest at first sight."""
GREEDY_S, MILP_S = 10.0, 20.0
"""Time limits of one group's plan: while shares are moved, and at the end."""
GAP = 0.005
NUM_RATED = 3
"""Builds of each grouping at first sight."""
WINDOW = 0.06
"""How far shares may be from the parts by rate."""
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
    plans: Mapping[Counts, GroupPlan]
    sync_s: float
    """All-reduce between the groups."""

    @property
    def rates(self) -> dict[Counts, float]:
        """Samples per second of each group."""
        return {counts: samples / self.plans[counts].seconds for counts, samples in self.shares.items()}

    @property
    def seconds(self) -> float:
        """Iteration time."""
        return max(plan.seconds for plan in self.plans.values()) + self.sync_s


class Builder:
    """Builds plans of unlike pipelines for one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._plans: dict[tuple[Counts, int], GroupPlan] = {}
        self._choices: dict[tuple[Counts, int], int] = {}

    def best(self) -> Constructed | None:
        """The best plan found; None if no grouping has one."""
        firsts = sorted((found for each in self._groupings() if (found := self._first(each))), key=_seconds)
        refined = sorted(map(self._refined, firsts[:KEPT]), key=_seconds)
        return self._finished(refined[0]) if refined else None

    def _groupings(self) -> Iterator[Grouping]:
        return iter(groupings(self.problem.cluster))

    def _first(self, grouping: Grouping) -> Constructed | None:
        """Shares in proportion to the groups' rates, first as if all devices were alike."""
        rates = {counts: float(_num_devices(self.problem, counts)) for counts in grouping}
        found: list[Constructed] = []
        for _ in range(NUM_RATED):
            near = self._near(grouping, rates)
            if not near:
                break
            found.append(self._build(grouping, near[0]))
            if found[-1].seconds == float("inf"):
                break
            rates = found[-1].rates
        return min(found, key=_seconds, default=None)

    def _near(self, grouping: Grouping, rates: Mapping[Counts, float]) -> list[Shares]:
        """Shares nearly in proportion to rates, those first with which the groups have most choices."""
        shares = near_shares(grouping, rates, self.problem.job.global_batch)
        return sorted(shares, key=lambda each: -prod(self._num_choices(*group) for group in each.items()))

    def _num_choices(self, counts: Counts, samples: int) -> int:
        """Ways to divide samples over pipelines and micro-batches."""
        if (counts, samples) not in self._choices:
            problem = self._part(counts, samples)
            self._choices[counts, samples] = 0 if problem is None else len(problem.variants)
        return self._choices[counts, samples]

    def _refined(self, built: Constructed) -> Constructed:
        """Samples are moved from the slowest groups to others, ever fewer at a time."""
        near = self._near(built.grouping, built.rates)[:NUM_NEAR]
        built = min((built, *(self._build(built.grouping, shares) for shares in near)), key=_seconds)
        size = max(1, self.problem.job.global_batch // (8 * len(built.grouping)))
        while size >= 1:
            others = [self._build(built.grouping, shares) for shares in _moves(built, size)]
            moved = min(others, key=_seconds, default=built)
            if moved.seconds < built.seconds:
                built = moved
            else:
                size //= 2
        return built

    def _finished(self, built: Constructed) -> Constructed:
        """The same shares, with better plans where a longer search finds some."""
        better = {}
        for counts, samples in built.shares.items():
            found = self._solved(counts, samples, "milp", MILP_S)
            better[counts] = min(found, built.plans[counts], key=lambda plan: plan.seconds)
        return self._with_sync(replace(built, plans=better))

    def _build(self, grouping: Grouping, shares: Shares) -> Constructed:
        plans = {counts: self._plan(counts, samples) for counts, samples in shares.items()}
        return self._with_sync(Constructed(grouping=grouping, shares=shares, plans=plans, sync_s=0.0))

    def _plan(self, counts: Counts, samples: int) -> GroupPlan:
        key = counts, samples
        if key not in self._plans:
            self._plans[key] = self._solved(counts, samples, "greedy", GREEDY_S)
        return self._plans[key]

    def _solved(self, counts: Counts, samples: int, solver: str, time_limit_s: float) -> GroupPlan:
        problem = self._part(counts, samples)
        if problem is None:
            return GroupPlan(seconds=float("inf"), plan=None)
        result = run(problem, solver, SolveOptions(gap=GAP, time_limit_s=time_limit_s))
        seconds = float("inf") if result.objective_s is None else result.objective_s
        return GroupPlan(seconds=seconds, plan=result.plan)

    def _part(self, counts: Counts, samples: int) -> Problem | None:
        """The problem of one group; None if nothing divides its samples."""
        cluster, job = sub_cluster(self.problem.cluster, counts), self.problem.job
        try:
            return replace(self.problem, cluster=cluster, job=replace(job, global_batch=samples))
        except BadInputError:
            return None

    def _with_sync(self, built: Constructed) -> Constructed:
        return replace(built, sync_s=self._sync_s(built))

    def _sync_s(self, built: Constructed) -> float:
        """See the module; groups are of whole hosts, so only interfaces count."""
        num_groups, cluster = len(built.grouping), self.problem.cluster
        if num_groups == 1 or built.seconds == float("inf"):
            return 0.0
        most_bytes = max(self._host_bytes(plan.plan) for plan in built.plans.values() if plan.plan is not None)
        classes = [[index for index, n in enumerate(counts) if n] for counts in built.grouping]
        pairs = {(a, b) for own, other in combinations(classes, 2) for a in own for b in other}
        links = [link_between_hosts(cluster, (a, 1), (b, 1)) for a, b in pairs]
        return 2 * (num_groups - 1) * max(link.transfer_s(most_bytes / num_groups) for link in links)

    def _host_bytes(self, plan: Plan) -> float:
        """Gradients that the busiest host of a group sends for it."""
        model, optimizer = self.problem.model, self.problem.job.optimizer
        per_byte = optimizer.gradient_bytes / model.precision.num_bytes
        sent: Counter[str] = Counter()
        for index, stage in enumerate(plan.stages):
            layers = model.layers[stage.start : stage.stop]
            num_bytes = per_byte * sum(layer.params_bytes + layer.shared_params_bytes for layer in layers)
            copies = (pipeline.stages[index].devices for pipeline in plan.pipelines)
            hosts = {device.partition("/")[0] for devices in copies for device in devices}
            for host in hosts:
                sent[host] += num_bytes / len(hosts)
        return max(sent.values())


def near_shares(grouping: Grouping, rates: Mapping[Counts, float], num_samples: int) -> list[Shares]:
    """Whole shares that add up, the same for equal groups, each within WINDOW of its part by rate.

    The rarest kind of group has what the others leave.
    """
    numbers = Counter(grouping)
    *others, rarest = sorted(numbers, key=lambda counts: -numbers[counts])
    per_rate = num_samples / sum(number * rates[counts] for counts, number in numbers.items())
    found: list[Shares] = []
    for chosen in product(*(_window(rates[counts] * per_rate) for counts in others)):
        shares = dict(zip(others, chosen, strict=True))
        left, rest = divmod(num_samples - sum(numbers[counts] * n for counts, n in shares.items()), numbers[rarest])
        if rest == 0 and left in _window(rates[rarest] * per_rate, times=2):
            found.append({**shares, rarest: left})
    return found


def _window(share: float, *, times: int = 1) -> range:
    width = max(1.0, times * WINDOW * share)
    return range(max(1, round(share - width)), round(share + width) + 1)


def _moves(built: Constructed, size: int) -> Iterator[Shares]:
    """Shares after samples of the slowest groups went to one other kind of group."""
    numbers = Counter(built.grouping)
    slowest = max(built.plans, key=lambda counts: built.plans[counts].seconds)
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


def _seconds(built: Constructed) -> float:
    return built.seconds


def _num_devices(problem: Problem, counts: Counts) -> int:
    return sum(n * server.num_devices for n, server in zip(counts, problem.cluster.servers, strict=True))
