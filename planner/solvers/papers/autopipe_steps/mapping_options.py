"""What stages with given layers take on the hosts that a run of them may be placed on."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.arrays import Floats
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Variant
from stagecut.planner.cost.collectives import crosses_hosts
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.links import link_within_host
from stagecut.planner.network.arrangement import recompute_choice
from stagecut.planner.solvers.papers.autopipe_steps.mapping_shapes import HostRun, Mapping, host_runs

End = tuple[int, int]
"""Server class, number of hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOption:
    """A run of stages on hosts of a class; times by stage of the run."""

    run: HostRun
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    tail_s: tuple[float, ...]
    transfer_s: tuple[float, ...]
    """Between its stages."""
    line_s: tuple[float, ...]
    """Between its stages, on links that queue; else 0."""
    queued_s: tuple[float, ...]
    """A: all-reduces in line up to each stage."""
    interface_s: float
    """All-reduces that use the interface."""
    island_s: tuple[float, ...]
    """All-reduces that use the shared fabric of each island used; else 0."""

    @property
    def end(self) -> End:
        """What a transfer to or from the run depends on."""
        return self.run.server_class, self.run.num_hosts


class Span(NamedTuple):
    """Layers of a stage, and its warm-up depth."""

    start: int
    stop: int
    depth: int


def run_options(
    costs: CostModel, variant: Variant, mapping: Mapping, spans: Sequence[Span], *, split: tuple[int, ...]
) -> tuple[RunOption, ...]:
    """Every placement of a run of stages with so many of them on each island, where they fit in memory."""
    runs = (run for run in run_choices(costs, variant, mapping) if run.split == split)
    return tuple(option for run in runs if (option := _option(costs, variant, run, spans)) is not None)


def run_choices(costs: CostModel, variant: Variant, mapping: Mapping) -> tuple[HostRun, ...]:
    """Everything that a host may run, and what the hosts of the mapping do run."""
    classes = range(len(costs.cluster.servers))
    menus = (host_runs(costs.problem, costs.cluster, index, variant.micro_batch) for index in classes)
    return tuple(dict.fromkeys((*itertools.chain.from_iterable(menus), *mapping)))


def _option(costs: CostModel, variant: Variant, run: HostRun, spans: Sequence[Span]) -> RunOption | None:
    """None where a stage does not fit in memory."""
    stages = [_stage_s(costs, variant, place, span) for place, span in zip(run.placements, spans, strict=True)]
    times = [stage for stage in stages if stage is not None]
    if len(times) < len(stages):
        return None
    forward_s, backward_s, sync_s, update_s = np.array(times).T
    island = np.array([placement.island for placement in run.placements])
    shared = np.array([each.shared for each in costs.cluster.servers[run.server_class].islands])[island]
    crosses = crosses_hosts(run.placements[0], costs.share)
    transfer_s = _transfers(costs, variant, run, spans)
    in_line_s = np.where(crosses | shared, sync_s, 0.0)
    same_line = np.tril(crosses | (island[:, None] == island))
    return RunOption(
        run=run,
        forward_s=tuple(forward_s),
        backward_s=tuple(backward_s),
        tail_s=tuple(sync_s + update_s),
        transfer_s=tuple(transfer_s),
        line_s=tuple(np.where((np.diff(island) != 0) | shared[:-1], transfer_s, 0.0)),
        queued_s=tuple(same_line @ in_line_s),
        interface_s=float(sync_s.sum()) if crosses else 0.0,
        island_s=tuple(0.0 if crosses else float(in_line_s[island == i].sum()) for i in dict.fromkeys(island.tolist())),
    )


def _stage_s(
    costs: CostModel, variant: Variant, placement: Placement, span: Span
) -> tuple[float, float, float, float] | None:
    """F, B, all-reduce and optimizer step; None where the stage does not fit in memory."""
    recompute = recompute_choice(costs, variant, placement, span.start, span.stop, span.depth)
    if recompute is None:
        return None
    cost = costs.stage(
        placement, micro_batch=variant.micro_batch, recompute=recompute, start=span.start, stop=span.stop
    )
    return float(cost.forward_s[0]), float(cost.backward_s[0]), float(cost.sync_s[0]), float(cost.update_s[0])


def _transfers(costs: CostModel, variant: Variant, run: HostRun, spans: Sequence[Span]) -> Floats:
    """Between the stages of the run, shape (stages - 1,)."""
    boundary_bytes = costs.problem.model.boundary_bytes()
    return np.array(
        [
            link_within_host(costs.cluster, run.server_class, sender.island, receiver.island).transfer_s(
                variant.micro_batch * float(boundary_bytes[span.stop])
            )
            for (sender, receiver), span in zip(itertools.pairwise(run.placements), spans, strict=False)
        ]
    )
