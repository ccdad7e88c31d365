"""The sublot sizes of a plan whose stages are given: forwards and backwards under a flush as lines of processes.

A stage has one size in both directions, its messages have sizes of their own. That leaves out nothing that is faster: a
backward of several forwards takes as long as theirs together
(:func:`stagecut.planner.cost.sublot_costs.sublot_seconds`), needs all their gradients before it starts and gives none
before it ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.problem import Variant
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.links import link_between
from stagecut.planner.network.sized.network import SizedArcs, Sizing, fitted_stages
from stagecut.planner.network.sized.plan import StageSizes, with_sizes
from stagecut.planner.sublots.labels import Sizes, SublotProblem
from stagecut.planner.sublots.process_chain import Process, ProcessChain


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushProblem:
    """The stages of a plan under a flush, with a sublot size of its own for every process left to choose."""

    plan: Plan
    """All samples in one micro-batch; its sizes are replaced."""
    sublots: SublotProblem
    """Lines of forwards, and of backwards seen backwards in time, stages and messages in turn."""

    def sized(self, sizes: Sizes) -> Plan:
        """The plan with these sizes, line by line."""
        forward, backward = sizes
        there, back = (*forward[1::2], None), (None, *backward[1::2])
        stages = zip(forward[::2], backward[::2], there, back, strict=True)
        return with_sizes(
            self.plan,
            [
                StageSizes(forward=x, backward=y, forward_message=ahead, backward_message=behind)
                for x, y, ahead, behind in stages
            ],
        )


def flush_problem(
    costs: CostModel, variant: Variant, plan: Plan, sizes: tuple[int, ...], *, with_tails: bool = True
) -> FlushProblem | None:
    """The sizes of a plan's processes; None if a stage does not fit in memory with all samples in flight.

    Parameters
    ----------
    costs
        Cost model of the variant's share.
    variant
        One micro-batch that holds all samples of a pipeline.
    with_tails
        Whether all-reduces and optimizer steps count, as release times of the backwards seen backwards in time.
    """
    sizing = Sizing(num_samples=variant.micro_batch, sizes=sizes)
    groups = [costs.device_group(stage) for stage in plan.stages]
    fitted = [
        fitted_stages(costs, sizing, group.placement, np.array([stage.start]), np.array([stage.stop]))
        for stage, group in zip(plan.stages, groups, strict=True)
    ]
    if not all(stage.allowed.any() for stage in fitted):
        return None
    boundary_bytes, message_s = costs.problem.model.boundary_bytes(), list[Floats]()
    for (sender, receiver), stage in zip(pairwise(groups), plan.stages[1:], strict=True):
        sent_bytes = boundary_bytes[stage.start] * sizing.lengths
        message_s.append(link_between(costs.cluster, sender, receiver).transfer_s(sent_bytes))
    forward, backward = (
        ProcessChain(
            processes=tuple(_in_turn(sizing, line, fitted, message_s, with_tails=with_tails and line == "backward")),
            partial_first=line == "backward",
        )
        for line in ("forward", "backward")
    )
    stages = range(0, 2 * len(groups) - 1, 2)
    recomputing = [bool(stage.recompute[0]) for stage in fitted]
    return FlushProblem(
        plan=_flushed(plan, variant, recomputing),
        sublots=SublotProblem.coupled(forward, backward, stages, alike=True),
    )


def _in_turn(
    sizing: Sizing, line: str, stages: Sequence[SizedArcs], message_s: Sequence[Floats], *, with_tails: bool
) -> list[Process]:
    """Stage, message, stage ... in the order of the stages."""
    processes = list[Process]()
    for index, stage in enumerate(stages):
        sizes = tuple(np.array(sizing.sizes)[stage.allowed[0]].tolist())
        seconds = _by_length(sizing, getattr(stage, f"{line}_s")[0])
        release_s = float(stage.tail_s[0]) if with_tails else 0.0
        processes.append(Process(name=f"{line} of stage {index}", seconds=seconds, sizes=sizes, release_s=release_s))
        if index < len(message_s):
            name = f"{line} message over boundary {index}"
            processes.append(Process(name=name, seconds=_by_length(sizing, message_s[index]), sizes=sizing.sizes))
    return processes


def _by_length(sizing: Sizing, seconds: Floats) -> Floats:
    """Seconds at every number of samples, shape (N + 1,), from those of the lengths that occur."""
    table = np.full(sizing.num_samples + 1, np.nan)
    table[sizing.lengths] = seconds
    return table


def _flushed(plan: Plan, variant: Variant, recomputing: Sequence[bool]) -> Plan:
    """The plan with all samples in one micro-batch under GPipe's schedule."""

    def whole(stage: Stage, recompute: bool) -> Stage:
        size = variant.micro_batch
        return replace(stage, recompute=recompute, warmup_depth=1, forward_micro_batch=size, backward_micro_batch=size)

    return replace(
        plan,
        schedule=variant.schedule,
        micro_batch=variant.micro_batch,
        num_microbatches=1,
        num_sliced=0,
        pipelines=tuple(
            Pipeline(stages=tuple(map(whole, pipeline.stages, recomputing))) for pipeline in plan.pipelines
        ),
    )
