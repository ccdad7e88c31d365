"""Whether a stage is divided as its job and its operators allow."""

from collections.abc import Iterator

from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.layer_graphs.sharding_faults import partial_faults, strategy_faults
from stagecut.planner.core.model import Layer
from stagecut.planner.core.operators.parallelism import allows
from stagecut.planner.core.operators.strategy import LayerStrategy
from stagecut.planner.core.plan import Stage
from stagecut.planner.core.problem import Problem


def sharding_faults(problem: Problem, stage: Stage, micro_batch: int) -> Iterator[str]:
    """Why the sharding of a stage is not in the search space: of each layer the first reason."""
    if stage.sharding is None:
        return
    if problem.job.sharding is None or problem.model.skip_edges:
        reason = "the model has skip edges" if problem.job.sharding else "the job allows sharding none"
        yield f"operators are divided each in its own way, but {reason}"
        return
    layers = problem.model.layers[stage.start : stage.stop]
    for layer, strategy in zip(layers, stage.sharding.layers, strict=False):
        faults = _layer_faults(problem, stage, layer, strategy, samples=micro_batch // stage.replicas)
        if fault := next(faults, ""):
            yield f"layer {layer.name!r}: {fault}"


def _layer_faults(
    problem: Problem, stage: Stage, layer: Layer, layer_strategy: LayerStrategy, *, samples: int
) -> Iterator[str]:
    assert stage.sharding is not None
    operators, strategies = operators_of(layer), layer_strategy.operators
    if len(operators) != len(strategies):
        yield f"has {len(operators)} operators, of which {len(strategies)} are divided"
        return
    kinds = problem.job.sharding or ()
    for operator, strategy in zip(operators, strategies, strict=True):
        for fault in strategy_faults(operator, strategy, stage.sharding.mesh, samples=samples):
            yield f"operator {operator.name!r} {fault}"
        if not allows(kinds, operator, strategy):
            shown = ", ".join(filter(None, (*strategy.splits, str(strategy.storage))))
            yield f"operator {operator.name!r} is divided by {shown}; the job allows only {', '.join(kinds)}"
    for name, fault in partial_faults(operators, strategies):
        yield f"operator {name!r} {fault}"
