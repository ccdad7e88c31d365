"""Whether the sharding that a plan file states for a stage fits the stage's layers and devices."""

from collections.abc import Iterator, Sequence
from math import prod

from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.layer_graphs.sharding_faults import partial_faults, strategy_faults
from stagecut.planner.core.model import Layer
from stagecut.planner.io.documents.complaints import nearest, shorten
from stagecut.planner.io.files.chain_checks import LocatedFault
from stagecut.planner.io.files.plan_entry import StageEntry
from stagecut.planner.io.files.sharding_entry import AlikeLayersEntry, ShardingEntry, strategy_of


def sharding_faults(stage: StageEntry, layers: Sequence[Layer]) -> Iterator[LocatedFault]:
    """Contradictions in the sharding of a stage of a model with these layers; places begin at the stage."""
    sharding = stage.sharding
    if sharding is None:
        return
    if prod(sharding.mesh) != stage.tensor_parallel:
        rule = f"must be a grid of tensor_parallel = {stage.tensor_parallel} devices"
        yield ("sharding", "mesh"), f"{rule}, got {' x '.join(map(str, sharding.mesh)) or 'no axes'}"
        return
    if not stage.start < stage.stop <= len(layers):
        return
    yield from _layer_faults(sharding, range(stage.start, stage.stop))
    samples = stage.forward_micro_batch // stage.replicas
    for number, alike in enumerate(sharding.layers):
        for index in (index for index in alike.layers if index < len(layers)):
            for steps, fault in _operator_faults(alike, layers[index], sharding.mesh, samples=samples):
                yield ("sharding", "layers", number, *steps), f"layer {shorten(layers[index].name)}: {fault}"


def _layer_faults(sharding: ShardingEntry, stage: range) -> Iterator[LocatedFault]:
    """Every layer of the stage, and no other, is stated once."""
    stated = set[int]()
    for number, alike in enumerate(sharding.layers):
        for slot, index in enumerate(alike.layers):
            place = ("sharding", "layers", number, "layers", slot)
            if index not in stage:
                yield place, f"must be a layer of the stage, from {stage.start} to {stage.stop - 1}, got {index}"
            elif index in stated:
                yield place, f"states layer {index} again"
            stated.add(index)
    if missing := [index for index in stage if index not in stated]:
        shown = ", ".join(map(str, missing[:10]))
        yield ("sharding", "layers"), f"must state every layer of the stage, layers missing: {shown}"


def _operator_faults(
    alike: AlikeLayersEntry, layer: Layer, mesh: Sequence[int], *, samples: int
) -> Iterator[LocatedFault]:
    """The operators are those of a layer, and can be divided like this; places begin at the alike layers."""
    operators = operators_of(layer)
    known = {operator.name: operator for operator in operators}
    for key, names in (("operators", alike.operators), ("storage", alike.storage)):
        for name in names:
            if name not in known:
                accepted = nearest(name, known) or f", accepted: {', '.join(known)}"
                yield (key, name), f"there is no operator {shorten(name)}{accepted}"
    if missing := [name for name in known if name not in alike.operators]:
        yield ("operators",), f"operator {shorten(missing[0])} is missing"
        return
    if uneven := [name for name in known if len(alike.operators[name]) != len(mesh)]:
        got = len(alike.operators[uneven[0]])
        rule = f"must be one per axis of the mesh, {len(mesh)}, got {got}"
        yield ("operators", uneven[0]), f"operator {shorten(uneven[0])}: {rule}"
        return
    strategies = [strategy_of(alike, name) for name in known]
    for operator, strategy in zip(operators, strategies, strict=True):
        for fault in strategy_faults(operator, strategy, tuple(mesh), samples=samples):
            yield ("operators", operator.name), f"operator {shorten(operator.name)} {fault}"
    for name, fault in partial_faults(operators, strategies):
        yield ("operators", name), f"operator {shorten(name)} {fault}"
