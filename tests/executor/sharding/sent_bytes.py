"""What the ranks of a sharded stage send, counted as torch issues it."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from stagecut.executor.pipeline import Pipeline
from stagecut.models.modules.module_chain import LayerModule, ModuleChain
from stagecut.planner.core.plan import Plan
from stagecut.planner.sharding.collectives import Collective, sent_bytes
from tests.executor import pool
from tests.executor.sharding.sharded_models import HIDDEN_SIZE, MODELS, TOKENS

Bytes = tuple[float, float, float]
"""Sent by a rank in a forward, in a backward, and once per iteration."""
COLLECTIVES = {
    "allreduce_": Collective.ALL_REDUCE,
    "_allgather_base_": Collective.ALL_GATHER,
    "_reduce_scatter_base_": Collective.REDUCE_SCATTER,
    "alltoall_base_": Collective.ALL_TO_ALL,
}


class Sent(TorchDispatchMode):
    """Counts the bytes of all collectives; integers, which are keys and numbers of rows for experts, apart."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0.0
        self.num_key_bytes = 0.0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d":
            given = [tensor for each in args[:2] for tensor in (each if isinstance(each, list) else [each])]
            tensors = [tensor for tensor in given if isinstance(tensor, Tensor)]
            objects = (each for each in args if isinstance(each, torch.ScriptObject))
            boxed = next(each for each in objects if each._type().name() == "ProcessGroup")
            size = torch.distributed.ProcessGroup.unbox(boxed).size()
            largest = max(tensor.numel() * tensor.element_size() for tensor in tensors)
            sent = sent_bytes(COLLECTIVES[func._opname], size, largest)
            if tensors[0].is_floating_point():
                self.num_bytes += sent
            else:
                self.num_key_bytes += sent
        return func(*args, **(kwargs or {}))


def countable(name: str) -> ModuleChain:
    """The layers of a model without ties, since one matrix cannot be divided in two ways, and with an even router."""
    return evenly_routed(replace(MODELS[name].modules(), ties=()))


def counted(pipeline: Pipeline, chain: ModuleChain, plan: Plan) -> dict[int, Bytes]:
    """What this rank sends for one micro-batch of each of its sharded stages, by the stage's index.

    Every expert gets as many tokens as any other.
    """
    return {
        own.index: _counted(own, chain, plan.micro_batch // plan.stages[own.index].replicas)
        for own in pipeline.stages
        if own.division is not None
    }


def _counted(stage, chain: ModuleChain, samples: int) -> Bytes:
    division = stage.division
    division.refresh()
    state = _texts_or_images(chain, samples) if stage.index == 0 else (_state(samples),)
    state = tuple(tensor.to(pool.device()) for tensor in state)
    with Sent() as forward:
        state = division.run(state, recompute=stage.recompute)
    with Sent() as backward:
        torch.autograd.backward(state, [torch.ones_like(tensor) for tensor in state])
    with Sent() as sync:
        division.sum_gradients(lambda parts: None)
        division.refresh()
    return forward.num_bytes, backward.num_bytes, sync.num_bytes


def _texts_or_images(chain: ModuleChain, samples: int) -> tuple[Tensor, ...]:
    """The input of the model; the tokens of every text have even and odd ids in turn."""
    inputs, _ = chain.batch(samples, torch.Generator().manual_seed(3))
    state = (inputs,) if isinstance(inputs, Tensor) else inputs
    return tuple(_in_turn(own) if own.shape == (samples, TOKENS) else own for own in state)


def _in_turn(ids: Tensor) -> Tensor:
    return ids - ids % 2 + torch.arange(TOKENS) % 2


def _state(samples: int) -> Tensor:
    """What a stage may get from the one before, with the signs of even and odd tokens."""
    state = 0.01 * torch.randn((samples, TOKENS, HIDDEN_SIZE), generator=torch.Generator().manual_seed(4))
    state[..., 0] = _signs(TOKENS)
    return state.requires_grad_()


def _signs(count: int) -> Tensor:
    return 1.0 - 2.0 * (torch.arange(count) % 2)


def evenly_routed(chain: ModuleChain) -> ModuleChain:
    """The chain with a router that sends even ids to the first half of the experts and odd ones to the other half.

    The sign of the first number of a token's state says which it is. With as many experts per token as there are in a
    half, two tokens one after another give one row to each expert, however samples, tokens and experts are divided.
    """
    build = {"embedding": _signed, "experts": _split_in_halves}

    def own(layer: LayerModule) -> LayerModule:
        change = build.get(layer.name.rpartition(".")[2])
        return layer if change is None else replace(layer, build=lambda: change(layer.build()))

    return replace(chain, layers=tuple(own(layer) for layer in chain.layers))


def _signed(embedding: nn.Module) -> nn.Module:
    if hasattr(embedding, "tokens"):
        with torch.no_grad():
            embedding.tokens.weight[:, 0] = _signs(len(embedding.tokens.weight))
    return embedding


def _split_in_halves(part: nn.Module) -> nn.Module:
    weight, half = part.inner.router.weight, part.inner.per_token
    with torch.no_grad():
        weight.zero_()
        weight[:half, 0], weight[half:, 0] = 1.0, -1.0
    return part
