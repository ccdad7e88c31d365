"""Plans laid out by hand: equal or stated stages on one device group after another, fitting in memory or not."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stagecut.planner.analysis.prediction import Played, play
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.network.arrangement import RECOMPUTE_MODES, NamedStage, plan_of
from stagecut.planner.network.device_groups import name_devices
from stagecut.planner.network.host_filling import GroupSize, fill_hosts
from stagecut.planner.solvers.diagnosis.extra_units import with_more_memory
from stagecut.planner.solvers.reference.even import even_stops


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The stages of a plan; what holds for the plan as a whole is the only choice that its job allows."""

    num_stages: int
    first_layers: tuple[int, ...] = ()
    """First layer of every stage; empty: equal layer counts."""
    replicas: tuple[int, ...] = (1,)
    """One number for all device groups, or one for each."""
    tensor_parallel: tuple[int, ...] = (1,)
    """One degree for all device groups, or one for each."""
    servers: tuple[str, ...] = ()
    """Server classes to use, in this order; empty: all, in the cluster's order."""

    def stops(self, num_layers: int) -> list[int]:
        """First layer after every stage."""
        if self.first_layers:
            return [*self.first_layers[1:], num_layers]
        return even_stops(num_layers, self.num_stages)


def plans_of(problem: Problem, layout: Layout) -> tuple[Plan, ...]:
    """The plan of a layout for every way to divide the cluster among its pipelines: hosts first, or devices first.

    Where the job allows recomputation, the stages recompute that would not fit otherwise, whether that suffices or not.

    Raises
    ------
    BadInputError
        If the layout contradicts itself, the model, the cluster or the schedule, apart from memory.
    """
    _check(problem, layout)
    costs, plans, complaints = CostModel(problem), list[Plan](), list[BadInputError]()
    for variant in problem.variants:
        try:
            plans.append(_plan(costs.of(variant.share), variant, layout))
        except BadInputError as fault:
            complaints.append(fault)
    if not plans:
        raise complaints[0]
    return tuple(plans)


def play_layout(problem: Problem, layout: Layout) -> Played:
    """The fastest of :func:`plans_of`, one that fits if any does, played; raises its errors."""
    played = [play(problem, plan) for plan in plans_of(problem, layout)]
    return min(played, key=lambda each: (bool(stages_short(each.costs)), each.timeline.iteration_s))


def stages_short(costs: PlanCosts) -> tuple[int, ...]:
    """The stages whose devices lack memory; of those that share devices the first."""
    short = (costs.memory_bytes > costs.limit_bytes).tolist()
    return tuple(stage for stage in range(costs.num_devices) if short[stage])


def _check(problem: Problem, layout: Layout) -> None:
    (chunks,) = {variant.chunks for variant in problem.variants}
    model, num_stages, first = problem.model, layout.num_stages, layout.first_layers
    require(num_stages % chunks == 0, "layout", "stages", f"a multiple of the {chunks} chunks", num_stages)
    rule = f"at most the {model.num_layers} layers of model {model.name!r}"
    require(num_stages <= model.num_layers, "layout", "stages", rule, num_stages)
    if first:
        rule = f"one first layer per stage, from 0, rising and below {model.num_layers}"
        rising = all(a < b for a, b in itertools.pairwise((*first, model.num_layers)))
        require(rising and first[0] == 0 and len(first) == num_stages, "layout", "cuts", rule, first)
    for name, values in (("replicas", layout.replicas), ("tensor_parallel", layout.tensor_parallel)):
        rule = f"one number, or one for each of the {num_stages // chunks} device groups"
        require(len(values) in (1, num_stages // chunks), "layout", name, rule, values)
    (size,) = problem.job.micro_batches
    for replicas in layout.replicas:
        require(size % replicas == 0, "layout", "replicas", f"divisors of the micro-batch {size}", replicas)
    shared = max(layout.tensor_parallel)
    can_share = any(layer.tensor_parallel_bytes is not None for layer in model.layers)
    rule = f"1, since no layer of model {model.name!r} can be shared"
    require(shared == 1 or can_share, "layout", "tensor_parallel", rule, shared)
    names = [server.name for server in problem.cluster.servers]
    known = set(layout.servers) <= set(names) and len({*layout.servers}) == len(layout.servers)
    require(known, "layout", "servers", f"some of {', '.join(names)}, each once", ", ".join(layout.servers))


def _plan(costs: CostModel, variant: Variant, layout: Layout) -> Plan:
    """The plan on one share of the cluster."""
    problem, cluster = costs.problem, costs.cluster
    names = [server.name for server in cluster.servers]
    order = [names.index(name) for name in layout.servers or names]
    groups = fill_hosts(cluster, order, _sizes(layout, layout.num_stages // variant.chunks))
    devices = name_devices(cluster, groups)
    assert devices is not None
    stops = layout.stops(problem.model.num_layers)

    def plan(recomputes: Sequence[bool]) -> Plan:
        parts = itertools.cycle(zip(groups, devices, strict=True))
        stages = [
            NamedStage(start=start, stop=stop, placement=group.placement, devices=names, recompute=recompute)
            for (start, stop), recompute, (group, names) in zip(
                itertools.pairwise((0, *stops)), recomputes, parts, strict=False
            )
        ]
        return plan_of(costs, variant, stages)

    first, *others = RECOMPUTE_MODES[problem.job.recompute]
    plain = plan([first] * layout.num_stages)
    roomy = replace(problem, cluster=with_more_memory(problem.cluster, math.inf))
    if broken := faults(CostModel(roomy), plain):
        raise BadInputError(f"layout: {broken[0]}")
    numbers = costs.plan(plain)
    short = numbers.memory_bytes > numbers.limit_bytes
    return plan(short.tolist()) if others and short.any() else plain


def _sizes(layout: Layout, num_groups: int) -> list[GroupSize]:
    replicas, degrees = (
        values * num_groups if len(values) == 1 else values for values in (layout.replicas, layout.tensor_parallel)
    )
    return [GroupSize(replicas=each, tensor_parallel=degree) for each, degree in zip(replicas, degrees, strict=True)]
