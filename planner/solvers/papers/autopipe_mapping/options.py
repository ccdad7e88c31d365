"""What stages with given layers cost on each host that may run them: parameters of the mapping program."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.placement import DeviceGroup, Placement
from stagecut.planner.core.problem import Variant
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.links import crosses_hosts, link_between, route_between, sync_route
from stagecut.planner.network.arrangement import recompute_choice
from stagecut.planner.solvers.papers.autopipe_mapping.mappings import DeviceMapping, HostRun, host_runs

Hosts = tuple[int, int]
"""Server class and number of hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOption:
    """A run of stages on a host of some class; seconds of each stage of the run."""

    run: HostRun
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    tail_s: tuple[float, ...]
    """All-reduce and optimizer step."""
    transfer_s: tuple[float, ...]
    """Over each boundary inside the run."""
    queueing_s: tuple[float, ...]
    """The same where messages queue for a fabric or a bridge, else 0."""
    queued_s: tuple[float, ...]
    """A: all-reduces of the stages up to each one that queue for the same link."""
    interface_s: float
    """All-reduces that use the interface."""
    island_s: tuple[float, ...]
    """All-reduces that use the shared fabric of each island in use, else 0."""

    @property
    def hosts(self) -> Hosts:
        """What transfers to and from the run depend on."""
        return self.run.server_class, self.run.num_hosts


class Span(NamedTuple):
    """Layers of a stage, and its warm-up depth."""

    start: int
    stop: int
    depth: int


def run_options(
    costs: CostModel, variant: Variant, mapping: DeviceMapping, spans: Sequence[Span], *, split: tuple[int, ...]
) -> tuple[RunOption, ...]:
    """Every way for a host to run these stages, so many on each island, that fits in memory."""
    runs = (run for run in run_choices(costs, variant, mapping) if run.split == split)
    return tuple(option for run in runs if (option := _option(costs, variant, run, spans)) is not None)


def run_choices(costs: CostModel, variant: Variant, mapping: DeviceMapping) -> tuple[HostRun, ...]:
    """Everything that a host may run, and what the hosts of the mapping do run."""
    menus = host_runs(costs.problem, costs.cluster, variant.micro_batch)
    return tuple(dict.fromkeys((*itertools.chain.from_iterable(menus), *mapping)))


def _option(costs: CostModel, variant: Variant, run: HostRun, spans: Sequence[Span]) -> RunOption | None:
    """None where a stage does not fit in memory."""
    times = [_stage_s(costs, variant, *each) for each in zip(run.placements, spans, strict=True)]
    fitting = [each for each in times if each is not None]
    if len(fitting) < len(times):
        return None
    forward_s, backward_s, sync_s, update_s = np.array(fitting).T
    cluster, crosses = costs.cluster, crosses_hosts(run.placements[0], costs.share)
    groups = [DeviceGroup(placement=each, hosts=tuple(range(each.num_hosts))) for each in run.placements]
    routes = [sync_route(cluster, group, costs.share) for group in groups]
    message_bytes = variant.micro_batch * costs.problem.model.boundary_bytes()[[span.stop for span in spans]]
    pairs = list(itertools.pairwise(groups))
    transfer_s = [
        link_between(cluster, *pair).transfer_s(float(size)) for pair, size in zip(pairs, message_bytes, strict=False)
    ]
    island = np.array([placement.island for placement in run.placements])
    island_s = np.where([len(route) > 0 and not crosses for route in routes], sync_s, 0.0)
    return RunOption(
        run=run,
        forward_s=tuple(forward_s),
        backward_s=tuple(backward_s),
        tail_s=tuple(sync_s + update_s),
        transfer_s=tuple(transfer_s),
        queueing_s=tuple(
            seconds if route_between(cluster, *pair) else 0.0 for pair, seconds in zip(pairs, transfer_s, strict=True)
        ),
        queued_s=tuple(np.tril([[route == other != () for other in routes] for route in routes]) @ sync_s),
        interface_s=float(sync_s.sum()) if crosses else 0.0,
        island_s=tuple(float(island_s[island == i].sum()) for i in dict.fromkeys(island.tolist())),
    )


def _stage_s(costs: CostModel, variant: Variant, placement: Placement, span: Span) -> list[float] | None:
    """F, B, all-reduce and optimizer step; None where the stage does not fit in memory."""
    recompute = recompute_choice(costs, variant, placement, span.start, span.stop, span.depth)
    if recompute is None:
        return None
    cost = costs.stage(
        placement, micro_batch=variant.micro_batch, recompute=recompute, start=span.start, stop=span.stop
    )
    return [float(times_s[0]) for times_s in (cost.forward_s, cost.backward_s, cost.sync_s, cost.update_s)]
