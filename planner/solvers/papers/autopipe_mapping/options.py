"""What stages with given layers cost on each host that may run them: parameters of the mapping program."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.placement import DeviceGroup
from stagecut.planner.core.problem import Variant
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.links import crosses_hosts, link_between, route_between, sync_route
from stagecut.planner.network.fitted_stages import fit_stages
from stagecut.planner.solvers.heuristic.moves import Run
from stagecut.planner.solvers.papers.autopipe_mapping.mappings import DeviceMapping, host_runs, stages_per_island

Hosts = tuple[int, int]
"""Server class and number of hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOption:
    """A run of stages on a host of some class, with the seconds of each of its stages."""

    run: Run
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    tail_s: tuple[float, ...]
    """All-reduce and optimizer step."""
    transfer_s: tuple[float, ...]
    """Over each boundary inside the run."""
    queueing_s: tuple[float, ...]
    """The same over a fabric or a bridge on which messages queue, else 0."""
    queued_s: tuple[float, ...]
    """A: all-reduces, up to and including that of each stage, that queue for the same link as it does."""
    interface_s: float
    """All-reduces of the run over the interface of its host."""
    island_s: tuple[float, ...]
    """All-reduces over the shared fabric of each island in use; 0 if it is not shared."""

    @property
    def hosts(self) -> Hosts:
        """What transfers to and from the run depend on."""
        return self.run[0].server_class, self.run[0].num_hosts


class Span(NamedTuple):
    """Layers of a stage, and its warm-up depth."""

    start: int
    stop: int
    depth: int


def run_options(
    costs: CostModel, variant: Variant, mapping: DeviceMapping, spans: Sequence[Span], *, split: tuple[int, ...]
) -> tuple[RunOption, ...]:
    """Every run that fits in memory with these stages, `split` of them on each of its islands."""
    runs = (run for run in run_choices(costs, variant, mapping) if stages_per_island(run) == split)
    return tuple(option for run in runs if (option := _option(costs, variant, run, spans)) is not None)


def run_choices(costs: CostModel, variant: Variant, mapping: DeviceMapping) -> tuple[Run, ...]:
    """Everything that a host may run, and what the hosts of the mapping do run."""
    menus = host_runs(costs.problem, costs.cluster, variant.micro_batch)
    return tuple(dict.fromkeys((*itertools.chain.from_iterable(menus), *mapping)))


def _option(costs: CostModel, variant: Variant, run: Run, spans: Sequence[Span]) -> RunOption | None:
    """The option of a run; None if a stage does not fit in memory."""
    stages = [
        fit_stages(costs, variant, placement, *np.array(span).reshape(3, 1))
        for placement, span in zip(run, spans, strict=True)
    ]
    if not all(stage.fits[0] for stage in stages):
        return None
    forward_s, backward_s, tail_s, sync_s = np.hstack(
        [[stage.forward_s, stage.backward_s, stage.tail_s, stage.sync_s] for stage in stages]
    )
    cluster, crosses = costs.cluster, crosses_hosts(run[0], costs.share)
    groups = [DeviceGroup(placement=each, hosts=tuple(range(each.num_hosts))) for each in run]
    routes = [sync_route(cluster, group, costs.share) for group in groups]
    message_bytes = variant.micro_batch * costs.problem.model.boundary_bytes()[[span.stop for span in spans]]
    pairs = list(itertools.pairwise(groups))
    transfer_s = [
        link_between(cluster, *pair).transfer_s(float(size)) for pair, size in zip(pairs, message_bytes, strict=False)
    ]
    island = np.array([placement.island for placement in run])
    island_s = np.where([len(route) > 0 and not crosses for route in routes], sync_s, 0.0)
    return RunOption(
        run=run,
        forward_s=tuple(forward_s),
        backward_s=tuple(backward_s),
        tail_s=tuple(tail_s),
        transfer_s=tuple(transfer_s),
        queueing_s=tuple(
            seconds if route_between(cluster, *pair) else 0.0 for pair, seconds in zip(pairs, transfer_s, strict=True)
        ),
        queued_s=tuple(np.tril([[route == other != () for other in routes] for route in routes]) @ sync_s),
        interface_s=float(sync_s.sum()) if crosses else 0.0,
        island_s=tuple(float(island_s[island == i].sum()) for i in dict.fromkeys(island.tolist())),
    )
