"""What all ranks of a run agree on, checked before any of them starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from stagecut.executor.play.batch import CountFunction, LossFunction
from stagecut.executor.play.build import Layers, chain_of
from stagecut.executor.play.checker import check_lists
from stagecut.executor.play.gradients import TiedWeights
from stagecut.executor.play.layout import Layout
from stagecut.executor.play.messages import Turn, turns_of
from stagecut.executor.play.optimizers import DEFAULT, OptimizerFactory
from stagecut.models.module_chain import CountedLoss, ModuleChain
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.plan import Plan
from stagecut.planner.io.documents.canonical import sha256_of
from stagecut.planner.io.files.plan_file import PlanFile, read_plan_file, to_tree
from stagecut.planner.simulator.action_lists import Action, Op, plan_actions

AnyPlan = Plan | PlanFile | str | Path
"""A plan, a plan file, or the path of one."""
Turns = Mapping[int, tuple[Turn, ...]]
"""Of every rank."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """How to train, whatever the plan; see :func:`executor.loading.load`."""

    loss_fn: LossFunction | None = None
    optimizer: OptimizerFactory = DEFAULT
    count: CountFunction | None = None
    clip_norm: float | None = None
    autocast: torch.dtype | None = None
    seed: int = 0
    check_batches: bool = True
    check_finite: bool = True


@dataclass(frozen=True, kw_only=True)
class Design:
    """A plan for the layers at hand."""

    plan: Plan
    chain: ModuleChain
    layout: Layout
    lists: tuple[tuple[Action, ...], ...]
    """Actions of each device group."""
    zero1: bool
    plan_hash: str | None
    """SHA-256 of the plan file's tree; None: the plan is of no file."""
    training: Training
    loss: LossFunction
    _turns: dict[tuple[int, bool], Turns] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Those asked for so far."""

    @classmethod
    def of(
        cls,
        plan: AnyPlan,
        layers: Layers,
        training: Training,
        *,
        actions: Sequence[Sequence[Action]] | None = None,
        shares: Sequence[Sequence[int]] | None = None,
        copied: bool = False,
    ) -> "Design":
        """Bring a plan and layers together.

        Raises
        ------
        BadInputError
            If the layers are not the plan's, the action lists cannot be played, or there is no loss.
        """
        content = read_plan_file(plan) if isinstance(plan, str | Path) else plan
        problem = content.problem if isinstance(content, PlanFile) else None
        own = content.plan if isinstance(content, PlanFile) else content
        chain = chain_of(layers, problem.model if problem else None, copied=copied)
        lists = plan_actions(own) if actions is None else actions
        check_lists(lists, own)
        return cls(
            plan=own,
            chain=chain,
            layout=Layout.of(own, problem.cluster if problem else None, shares=shares),
            lists=tuple(tuple(actions) for actions in lists),
            zero1=problem is not None and problem.job.zero1,
            plan_hash=sha256_of(to_tree(content)) if isinstance(content, PlanFile) else None,
            training=training,
            loss=_loss_of(training, chain),
        )

    @property
    def global_batch(self) -> int:
        """Samples of a training step."""
        return self.layout.num_pipelines * self.plan.num_microbatches * self.plan.micro_batch

    def turns(self, pipeline: int, *, training: bool) -> Turns:
        """Turns of every rank of a pipeline, by rank; the forwards alone for an evaluation. Worked out once."""
        key = (pipeline, training)
        if key not in self._turns:
            lists = self.lists if training else tuple(_forwards(actions) for actions in self.lists)
            self._turns[key] = turns_of(lists, self.layout, pipeline=pipeline)
        return self._turns[key]

    @property
    def tied(self) -> tuple[TiedWeights, ...]:
        """Weights that stages on different device groups have in common, in order of their owners."""
        holders: dict[str, list[int]] = {}
        for tie in self.chain.ties:
            name = f"{self.chain.layers[tie.owner[0]].name}.{tie.owner[1]}"
            holders.setdefault(name, [self._stage_of(tie.owner[0])]).append(self._stage_of(tie.copy[0]))
        return tuple(
            TiedWeights(name=name, stages=_one_of_each_group(stages, self.layout.num_groups))
            for name, stages in holders.items()
            if len({stage % self.layout.num_groups for stage in stages}) > 1
        )

    def _stage_of(self, layer: int) -> int:
        return next(index for index, stage in enumerate(self.plan.stages) if stage.start <= layer < stage.stop)


def _loss_of(training: Training, chain: ModuleChain) -> LossFunction:
    loss, count = training.loss_fn or chain.loss, training.count
    if loss is None:
        raise BadInputError("executor: a list of layers has no loss of its own; give loss_fn")
    if count is None:
        return loss
    if isinstance(loss, CountedLoss):
        raise BadInputError(
            f"executor: the loss of model {chain.name!r} counts by itself; leave count out, or give a loss_fn that sums"
        )
    return CountedLoss(part=lambda output, targets, total: loss(output, targets) / total, count=count)


def _forwards(actions: Sequence[Action]) -> tuple[Action, ...]:
    return tuple(action for action in actions if action.op is Op.FORWARD)


def _one_of_each_group(stages: Sequence[int], num_groups: int) -> tuple[int, ...]:
    """Stages of one device group hold the weights once."""
    first: dict[int, int] = {}
    for stage in stages:
        first.setdefault(stage % num_groups, stage)
    return tuple(first.values())
