"""Optimizers for the parameters of one rank."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import AdamW, Optimizer

from stagecut.executor.play.tensor_parallel import is_shared
from stagecut.planner.core.messages.checks import require

OptimizerFactory = Callable[[Iterable[Any]], Optimizer]
"""Makes an optimizer from parameters or parameter groups, such as `functools.partial(torch.optim.AdamW, lr=1e-3)`."""

DEFAULT: OptimizerFactory = AdamW


def build_optimizer(parameters: Mapping[str, nn.Parameter], factory: OptimizerFactory) -> Optimizer:
    """An optimizer for all parameters, with DTensors in a parameter group of their own.

    torch's fused and foreach steps do not mix DTensors and plain tensors. Either group may be empty: every rank of
    every plan has both, so that the state of a learning-rate scheduler can be restored under any plan.
    """
    trained = [parameter for parameter in parameters.values() if parameter.requires_grad]
    shared = [parameter for parameter in trained if is_shared(parameter)]
    plain = [parameter for parameter in trained if not is_shared(parameter)]
    return factory([{"params": plain}, {"params": shared}])


def build_zero1(
    parameters: Mapping[str, nn.Parameter], factory: OptimizerFactory, group: dist.ProcessGroup
) -> Optimizer:
    """An optimizer whose state is sharded over the ranks of a group (ZeRO-1, Rajbhandari et al., SC 2020).

    Raises
    ------
    BadInputError
        If the stage also uses tensor parallelism, which torch's `ZeroRedundancyOptimizer` does not support.
    """
    from torch.distributed.optim import ZeroRedundancyOptimizer  # importing it takes a second

    trained = [parameter for parameter in parameters.values() if parameter.requires_grad]
    both = any(is_shared(parameter) for parameter in trained)
    require(not both, "executor", "zero1", "off for stages with tensor_parallel above 1", True)
    if not trained:
        return build_optimizer(parameters, factory)
    groups = [{"params": trained}, {"params": []}]  # two, as without ZeRO-1
    return ZeroRedundancyOptimizer(groups, optimizer_class=factory, process_group=group)  # type: ignore[arg-type]


def local_optimizer(optimizer: Optimizer) -> Optimizer:
    """The optimizer that updates parameters on this rank: with ZeRO-1, its own shard of them."""
    own = getattr(optimizer, "optim", optimizer)
    assert isinstance(own, Optimizer)
    return own


def local_states(optimizer: Optimizer) -> Mapping[torch.Tensor, Mapping[str, Any]]:
    """The state of each parameter that this rank updates."""
    return local_optimizer(optimizer).state
