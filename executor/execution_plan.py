"""A plan bound to layers: what all ranks of a run agree on, checked before any of them starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from stagecut.executor.play.batch import CountFunction, LossFunction
from stagecut.executor.play.build import Layers, chain_of
from stagecut.executor.play.gradients import TiedWeights
from stagecut.executor.play.optimizers import DEFAULT, OptimizerFactory
from stagecut.executor.schedule.checker import check_lists
from stagecut.executor.schedule.rank_layout import RankLayout
from stagecut.executor.schedule.turns import Turn, turns_of
from stagecut.executor.sharding.plans import PlannedStage, check_actions, check_loss, planned_stages
from stagecut.models.modules.module_chain import CountedLoss, ModuleChain
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.plan import Plan
from stagecut.planner.io.documents.canonical import sha256_of
from stagecut.planner.io.files.plan_file import PlanFile, read_plan_file, to_tree
from stagecut.planner.simulator.action_lists import Action, plan_actions

AnyPlan = Plan | PlanFile | str | Path
"""A plan, a plan file, or the path of one."""
Turns = Mapping[int, tuple[Turn, ...]]
"""The turns of each rank."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """How to train, independent of the plan; see :func:`stagecut.executor.loading.load`."""

    loss_fn: LossFunction | None = None
    optimizer: OptimizerFactory = DEFAULT
    count: CountFunction | None = None
    clip_norm: float | None = None
    autocast: torch.dtype | None = None
    seed: int = 0
    check_batches: bool = True
    check_finite: bool = True


@dataclass(frozen=True, kw_only=True)
class ExecutionPlan:
    """A plan for given layers."""

    plan: Plan
    chain: ModuleChain
    layout: RankLayout
    lists: tuple[tuple[Action, ...], ...]
    """The action list of each device group."""
    zero1: bool
    plan_hash: str | None
    """SHA-256 of the plan file's tree; None if the plan was not loaded from a file."""
    training: Training
    loss: LossFunction
    sharded: tuple[PlannedStage | None, ...] = ()
    """For each stage, how its operators are divided; None: they are not."""
    _turns: dict[tuple[int, bool], Turns] = field(default_factory=dict, init=False, repr=False, compare=False)

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
    ) -> "ExecutionPlan":
        """Bind a plan to layers.

        Raises
        ------
        BadInputError
            If the layers do not match the plan, the action lists cannot be played, or there is no loss.
        """
        content = read_plan_file(plan) if isinstance(plan, str | Path) else plan
        problem = content.problem if isinstance(content, PlanFile) else None
        own = content.plan if isinstance(content, PlanFile) else content
        chain = chain_of(layers, problem.model if problem else None, copied=copied)
        lists = plan_actions(own) if actions is None else actions
        check_lists(lists, own)
        loss, sharded = loss_of(training, chain), planned_stages(own, chain, problem)
        check_loss(sharded[-1], loss)
        layout = RankLayout.of(own, problem.cluster if problem else None, shares=shares)
        check_actions(lists, layout, sharded)
        zero1 = problem is not None and problem.job.zero1
        rule = "off for plans with sharded stages, which store optimizer state in parts by themselves"
        require(not (zero1 and any(sharded)), "executor", "zero1", rule, zero1)
        return cls(
            plan=own,
            chain=chain,
            layout=layout,
            lists=tuple(tuple(actions) for actions in lists),
            zero1=zero1,
            plan_hash=sha256_of(to_tree(content)) if isinstance(content, PlanFile) else None,
            training=training,
            loss=loss,
            sharded=sharded,
        )

    @property
    def global_batch(self) -> int:
        """Samples per training step."""
        return self.layout.num_pipelines * self.plan.num_samples

    def turns(self, pipeline: int, *, training: bool) -> Turns:
        """Turns of every rank of a pipeline, by rank; forwards alone for an evaluation. Cached."""
        key = (pipeline, training)
        if key not in self._turns:
            self._turns[key] = turns_of(self.lists, self.layout, pipeline=pipeline, training=training)
        return self._turns[key]

    @property
    def tied(self) -> tuple[TiedWeights, ...]:
        """Weights shared by stages on different device groups, in order of their owners."""
        holders: dict[str, dict[int, int]] = {}
        for tie in self.chain.ties:
            name = f"{self.chain.layers[tie.owner[0]].name}.{tie.owner[1]}"
            for layer, _ in (tie.owner, tie.copy):
                stage = next(index for index, own in enumerate(self.plan.stages) if own.start <= layer < own.stop)
                # stages of one device group hold the weights once
                holders.setdefault(name, {}).setdefault(stage % self.layout.num_groups, stage)
        return tuple(
            TiedWeights(name=name, stages=tuple(by_group.values()))
            for name, by_group in holders.items()
            if len(by_group) > 1
        )


def loss_of(training: Training, chain: ModuleChain) -> LossFunction:
    """The loss of a training; raises a BadInputError if there is none, or two ways of counting."""
    loss, count = training.loss_fn or chain.loss, training.count
    if loss is None:
        raise BadInputError("executor: a list of layers has no loss function; pass loss_fn")
    if count is None:
        return loss
    if isinstance(loss, CountedLoss):
        raise BadInputError(
            f"executor: the loss of model {chain.name!r} does its own counting; omit count, or pass a loss_fn that sums"
        )
    return CountedLoss(part=lambda output, targets, total: loss(output, targets) / total, count=count)
