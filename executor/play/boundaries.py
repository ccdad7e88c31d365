"""What crosses each stage boundary of a pipeline, found by running a sample through the stages."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import cast

import torch

from stagecut.executor.play.context import RankContext
from stagecut.executor.play.signature import Signature, TensorLike, signature_of
from stagecut.executor.play.stage import LayerState, StageModule


def find_boundaries(
    sample: LayerState,
    *,
    stages: Mapping[int, StageModule],
    context: RankContext,
    autocast: AbstractContextManager[object],
) -> tuple[Signature, ...]:
    """Shapes and types of the tensors before each stage and after the last one, known to all ranks.

    The stages run one after another, in evaluation mode and without gradients, so that neither random
    numbers nor running statistics change.

    Parameters
    ----------
    sample
        Inputs of the first layer for one sample, or for as many as the devices of a replica can divide.
    stages
        This rank's stages, by index.
    """
    found: list[Signature] = [()]
    state = sample
    for index in range(context.layout.num_stages):
        if index in stages:
            if index > 0:
                state = tuple(like.empty(len(sample[0]), context.device).zero_() for like in found[-1])
            with torch.no_grad(), autocast:
                state = _evaluated(stages[index], state)
        source = context.layout.rank_of(0, index, replica=0, tensor_rank=0)
        likes = context.transport.broadcast([tuple(like) for like in signature_of(state)], source)
        found.append(tuple(TensorLike(*like) for like in cast(list[tuple[tuple[int, ...], torch.dtype]], likes)))
    return (*found[:-1], ())


def _evaluated(stage: StageModule, state: LayerState) -> LayerState:
    modes = {module: module.training for module in stage.modules()}
    stage.eval()
    try:
        return tuple(stage(state))
    finally:
        for module, mode in modes.items():
            module.training = mode
