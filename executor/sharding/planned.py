"""The operators of a sharded stage as planned, and what runs each of them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import nn

from stagecut.models.modules.module_chain import LayerModule
from stagecut.models.modules.operators import OperatorModule
from stagecut.planner.core.operators.operators import INPUT, OUTPUT, SAMPLE, Operator, Port, Tensor
from stagecut.planner.core.operators.strategy import WHOLE_LOOP, LayerStrategy, Strategy, WeightStorage

LOSS = "loss"
"""Kind of the last operator of a model, which is the training's loss function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOperator:
    """An operator, how it is divided, and what runs it."""

    operator: Operator
    strategy: Strategy
    module: OperatorModule


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLayer:
    """A layer of a sharded stage."""

    module: LayerModule
    operators: tuple[Operator, ...]
    strategy: LayerStrategy

    def with_axes(self, order: tuple[int, ...]) -> "PlannedLayer":
        """The same on a mesh with its axes in another order."""
        own = (
            replace(strategy, splits=tuple(strategy.splits[axis] for axis in order))
            for strategy in self.strategy.operators
        )
        return replace(self, strategy=LayerStrategy(operators=tuple(own)))

    @property
    def pairs(self) -> tuple[tuple[Operator, Strategy], ...]:
        """Operators and how they are divided."""
        return tuple(zip(self.operators, self.strategy.operators, strict=True))

    @property
    def loss(self) -> tuple[Operator, Strategy] | None:
        """The loss, if the layer ends with it."""
        return self.pairs[-1] if self.operators[-1].kind == LOSS else None

    @property
    def runs_whole(self) -> bool:
        """Whether the layer runs as a whole: how its operators run is unknown, and at most the samples are divided."""
        known = self.module.operators or {}
        if all(operator.name in known or operator.kind == LOSS for operator in self.operators):
            return False
        splits = {strategy.splits for strategy in self.strategy.operators}
        return len(splits) == 1 and set(*splits) <= {SAMPLE, WHOLE_LOOP} and len(self.storages) < 2

    @property
    def storages(self) -> set[WeightStorage]:
        """How its weights are stored."""
        return {strategy.storage for operator, strategy in self.pairs if operator.weights}

    def run_operators(self, layer: nn.Module) -> Iterator[RunOperator]:
        """What runs, in order; the loss is left out."""
        if self.runs_whole:
            yield self._whole(layer)
            return
        assert self.module.operators is not None  # refused before anything starts
        for operator, strategy in self.pairs:
            if operator.kind != LOSS:
                own = self.module.operators[operator.name]
                kept = tuple(tensor for tensor in operator.outputs if tensor.name in self._taken())
                yield RunOperator(operator=replace(operator, outputs=kept), strategy=strategy, module=own)

    def _taken(self) -> set[str]:
        return {OUTPUT, *(port.tensor for operator in self.operators for port in operator.inputs)}

    def _whole(self, layer: nn.Module) -> RunOperator:
        names = {name: _unnamed(parameter.dim()) for name, parameter in layer.named_parameters()}
        operator = Operator(
            name=self.module.name,
            kind="layer",
            inputs=(Port(tensor=INPUT, dims=(SAMPLE,)),),
            outputs=(Tensor(name=OUTPUT, dims=(SAMPLE,), num_bytes=0.0),),
        )
        return RunOperator(
            operator=operator,
            strategy=Strategy(
                splits=self.strategy.operators[0].splits,
                storage=next(iter(self.storages), WeightStorage.REPLICATED),
            ),
            module=OperatorModule(run=lambda module, inputs, _: module(*inputs), weights=names),
        )


def _unnamed(num_dims: int) -> tuple[str, ...]:
    """Names for dimensions along which nothing is divided."""
    return tuple(f"dimension {index}" for index in range(num_dims))
