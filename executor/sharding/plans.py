"""The sharded stages of a plan, bound to layers and checked before anything starts."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stagecut.executor.schedule.rank_layout import RankLayout
from stagecut.executor.sharding.planned import PlannedLayer
from stagecut.models.modules.module_chain import CountedLoss, ModuleChain
from stagecut.planner.core.cluster import Link
from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import Layer
from stagecut.planner.core.operators.operators import SAMPLE
from stagecut.planner.core.operators.strategy import WHOLE_LOOP, StageSharding
from stagecut.planner.core.plan import Plan, Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.meshes import mesh_of
from stagecut.planner.sharding.mesh import Mesh, MeshAxis
from stagecut.planner.simulator.action_lists import Action, Op

ANY_LINK = Link(bandwidth_bytes_per_s=1e9, latency_s=1e-6)
"""Decides between ways of a tensor where a plan comes without a cluster."""


@dataclass(frozen=True, kw_only=True)
class PlannedStage:
    """A sharded stage of a plan."""

    mesh: Mesh
    """Its axes in the order in which they divide a dimension in common."""
    order: tuple[int, ...]
    """Of these axes, among those of the plan."""
    layers: tuple[PlannedLayer, ...]

    @property
    def sample_parts(self) -> int:
        """What has to divide the samples of a replica."""
        splits = {strategy.splits for layer in self.layers for strategy in layer.strategy.operators}
        parts = (math.prod(s for s, own in zip(self.mesh.sizes, each, strict=True) if own == SAMPLE) for each in splits)
        return math.lcm(*parts)


def planned_stages(plan: Plan, chain: ModuleChain, problem: Problem | None) -> tuple[PlannedStage | None, ...]:
    """For each stage of a plan, how its operators are divided; None: they are not.

    Raises
    ------
    BadInputError
        If the layers cannot be run as planned: the message names the layer.
    """
    is_sharded = any(stage.sharding is not None for stage in plan.stages)
    if chain.stands_in or not is_sharded:
        return (None,) * len(plan.stages)
    costs = CostModel(problem, plan.share) if problem is not None else None
    _check_ties(plan, chain)
    return tuple(_planned(stage, chain, costs) for stage in plan.stages)


def check_loss(stage: PlannedStage | None, loss: object) -> None:
    """Refuse a loss that cannot be divided as the last stage has it; raises a BadInputError."""
    if stage is None:
        return
    last = stage.layers[-1]
    splits = set(last.strategy.operators[-1].splits) - {WHOLE_LOOP, SAMPLE}
    if last.loss is None and not last.runs_whole:
        raise BadInputError(
            f"layer {last.module.name!r}: the last layer of a model must end with an operator of kind 'loss' to be "
            "divided along anything but samples"
        )
    if splits and not (isinstance(loss, CountedLoss) and loss.part_with is not None):
        raise BadInputError(
            f"layer {last.module.name!r}: this loss function can be divided along samples only, not along "
            f"{', '.join(sorted(splits))}: only the catalogue's cross entropies can; divide it otherwise"
        )


def check_actions(lists: Sequence[Sequence[Action]], layout: RankLayout, stages: Sequence[PlannedStage | None]) -> None:
    """Refuse actions of samples that the devices of a stage cannot divide, and split backwards; a BadInputError."""
    for action in (action for own in lists for action in own):
        planned = stages[action.stage]
        if planned is None:
            continue
        if action.op in (Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT):
            raise BadInputError(f"stage {action.stage}: backwards of a sharded stage cannot be split")
        for replica in range(layout.num_replicas(action.stage)):
            lo, hi = layout.part(action.stage, replica, action.lo, action.hi)
            if action.op is Op.FORWARD and (hi - lo) % planned.sample_parts:
                raise BadInputError(
                    f"stage {action.stage}: its devices divide the samples of a replica into {planned.sample_parts} "
                    f"parts, but replica {replica} forwards {hi - lo} at once; choose another micro-batch or sharding"
                )


def _check_ties(plan: Plan, chain: ModuleChain) -> None:
    """Refuse weights tied between two stages of one device group: a rank would hold them once, divided in two ways."""
    for tie in chain.ties:
        first, second = (
            next(number for number, stage in enumerate(plan.stages) if stage.start <= layer < stage.stop)
            for layer in (tie.owner[0], tie.copy[0])
        )
        both = plan.stages[first], plan.stages[second]
        alone = first == second or first % plan.num_groups != second % plan.num_groups
        if not alone and any(stage.sharding is not None for stage in both):
            raise BadInputError(
                f"stages {first} and {second} are on the same devices and share tied weights "
                f"({chain.layers[tie.owner[0]].name!r}): neither can be sharded; choose another schedule"
            )


def _planned(stage: Stage, chain: ModuleChain, costs: CostModel | None) -> PlannedStage | None:
    sharding = stage.sharding
    if sharding is None or stage.tensor_parallel == 1:
        return None
    layers = tuple(_layers(stage, sharding, chain, costs))
    mesh = _mesh(stage, sharding, costs)
    order = mesh.division_order
    return PlannedStage(
        mesh=Mesh(axes=tuple(mesh.axes[axis] for axis in order)),
        order=order,
        layers=tuple(layer.with_axes(order) for layer in layers),
    )


def _mesh(stage: Stage, sharding: StageSharding, costs: CostModel | None) -> Mesh:
    if costs is not None:
        return mesh_of(costs.cluster, costs.device_group(stage).placement, sharding.mesh, costs.share)
    return Mesh(axes=tuple(MeshAxis(size=size, link=ANY_LINK) for size in sharding.mesh))


def _layers(
    stage: Stage, sharding: StageSharding, chain: ModuleChain, costs: CostModel | None
) -> Iterator[PlannedLayer]:
    for index, strategy in zip(range(stage.start, stage.stop), sharding.layers, strict=True):
        module = chain.layers[index]
        profile = costs.problem.model.layers[index] if costs is not None else Layer(name=module.name)
        operators = operators_of(profile)
        if len(operators) != len(strategy.operators):
            raise BadInputError(
                f"layer {module.name!r}: has {len(operators)} operators, but the plan divides {len(strategy.operators)}"
            )
        planned = PlannedLayer(module=module, operators=operators, strategy=strategy)
        _check_runs(planned)
        yield planned


def _check_runs(layer: PlannedLayer) -> None:
    if layer.runs_whole:
        return
    name, known = layer.module.name, layer.module.operators
    if known is None:
        raise BadInputError(
            f"layer {name!r}: runs as a whole, so all of its operators must be divided alike, along samples or not at "
            "all, and store their weights alike; divide it so"
        )
    missing = [own.name for own in layer.operators if own.name not in known and layer.loss != (own, layer.pairs[-1][1])]
    if missing:
        raise BadInputError(f"layer {name!r}: nothing here runs its operator {missing[0]!r} in parts")
