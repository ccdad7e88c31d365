"""Bytes and operations of every layer, found by running each at two sizes; the clock plays no part."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from stagecut.executor.measure.live_bytes import LiveBytes, SavedTensors, Storages, storages
from stagecut.executor.measure.passage import Passage
from stagecut.executor.measure.samples import Samples, fresh_state, loss_of
from stagecut.executor.play.build import build_layer
from stagecut.executor.play.stage import State, as_state
from stagecut.models.module_chain import ModuleChain
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.model import SkipEdge

CPU_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
"""Fused attention that torch's counter of operations passes over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFacts:
    """One layer; bytes and operations for each sample, parameters as numbers."""

    name: str
    kind: str
    """Class of the module."""
    num_params: int
    num_shared_params: int
    """Copies of weights that another layer owns."""
    forward_flops: float
    saved_bytes: float
    output_bytes: float
    working_bytes: float
    is_shareable: bool
    """Whether several devices can share it (tensor parallelism)."""
    allocated_bytes: float
    """Kept by a forward as the memory counters of a GPU have it, its output included; 0 on a CPU, which has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainFacts:
    """A chain of layers, and the tensors that pass by some of them."""

    layers: tuple[LayerFacts, ...]
    skip_edges: tuple[SkipEdge, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What one layer, forward and backward, needs for some samples."""

    size: int
    saved_bytes: int
    """Without anything that the layer hands on."""
    kept_output_bytes: tuple[int, ...]
    """By place in the state handed on: what the backward needs of it."""
    working_bytes: int
    allocated_bytes: int
    """0 on a CPU, which has no such counters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """How a layer is run."""

    is_first: bool
    near: tuple[bool, ...]
    """For each tensor it is given, whether the layer before made it."""
    loss: Callable[..., Tensor] | None
    """Of the last layer."""
    autocast: torch.dtype | None


def inspect_chain(chain: ModuleChain, samples: Samples, *, autocast: torch.dtype | None) -> ChainFacts:
    """Run the layers of a chain one after another, holding one of them at a time.

    Bytes per sample are what grows from half of the samples to all of them. What does not grow with their
    number is not counted: copies of weights that autocast makes once in a step, and the gradient of a
    weight before it is added up.

    Raises
    ------
    BadInputError
        If a layer cannot compute with what the one before it hands on.
    """
    large, small = samples, samples.first(samples.size // 2)
    passage, layers, num_layers = Passage(small.state), [], len(chain.layers)
    for index in range(num_layers):
        module = build_layer(chain, index, seed=0).to(samples.state[0].device).train()
        given = _Given(
            is_first=index == 0,
            near=passage.comes_from_neighbour(),
            loss=chain.loss if index == num_layers - 1 else None,
            autocast=autocast,
        )
        with _blamed_on(chain.layers[index].name, small.state):
            runs = [_run(module, each, given) for each in (small, large)]
        with FlopCounterMode(display=False, custom_mapping=_attention_formulas()) as counter:
            small = _handed_on(module, small, autocast)
        large = _handed_on(module, large, autocast)
        passage.step(index, small.state)
        layers.append((_facts(chain, index, module, runs, flops=counter.get_total_flops() / small.size), runs))
    passage.leave(num_layers - 1)
    return ChainFacts(
        layers=tuple(
            replace(
                facts,
                output_bytes=passage.output_bytes(index) / small.size,
                saved_bytes=facts.saved_bytes + _kept_of_passing(passage, index, runs),
            )
            for index, (facts, runs) in enumerate(layers)
        ),
        skip_edges=passage.skip_edges(small.size),
    )


def computing(device: torch.device, autocast: torch.dtype | None) -> AbstractContextManager[object]:
    """The context of a training step: autocast keeps its copies of weights until the end of it."""
    return nullcontext() if autocast is None else torch.autocast(device.type, dtype=autocast)


@contextmanager
def _blamed_on(layer: str, state: State) -> Iterator[None]:
    """Whatever a layer raises on its first run is between it and what it was given."""
    try:
        yield
    except Exception as fault:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in state)
        reason = " ".join(str(fault).split())
        raise BadInputError(f"layer {layer!r} fails on an input of shape {shapes}: {reason}") from fault


def _run(module: nn.Module, samples: Samples, given: _Given) -> _Run:
    inputs = fresh_state(samples.state, gradients=not given.is_first)
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)  # a first backward would keep its own
    device = inputs[0].device
    before_bytes = _allocated_bytes(device)
    saved = SavedTensors()
    with saved, computing(device, given.autocast):
        outputs = as_state(module(*inputs))
        if given.loss is not None:
            outputs = (loss_of(given.loss, outputs, samples.targets),)
    allocated_bytes = _allocated_bytes(device) - before_bytes
    made = tuple(output for output in outputs if not _is_one_of(output, inputs))
    taken = [
        tensor for tensor, near in zip(inputs, given.near, strict=True) if near and not _is_one_of(tensor, outputs)
    ]
    weights = storages(itertools.chain(module.parameters(), module.buffers()))
    kept = _without(saved.found | storages(taken), weights.keys() | (storages(made).keys() - storages(inputs).keys()))
    saved_bytes = sum(storage.nbytes() for storage in kept.values())
    kept_output_bytes = tuple(_kept_bytes(output, saved.found) if _is_one_of(output, made) else 0 for output in outputs)
    gradients = storages(parameter.grad for parameter in module.parameters() if parameter.grad is not None)
    live = LiveBytes(present=kept, passed_over=weights | gradients | storages(outputs))
    saved.found.clear()
    kept.clear()
    with live:
        _backward(made)
    return _Run(
        size=samples.size,
        saved_bytes=saved_bytes,
        kept_output_bytes=kept_output_bytes,
        working_bytes=live.peak_bytes,
        allocated_bytes=allocated_bytes,
    )


def _is_one_of(tensor: Tensor, state: Iterable[Tensor]) -> bool:
    return any(tensor is other for other in state)


def _without(found: Storages, addresses: Set[int]) -> Storages:
    return {address: storage for address, storage in found.items() if address not in addresses}


def _kept_bytes(output: Tensor, found: Storages) -> int:
    storage = output.untyped_storage()
    return storage.nbytes() if storage.data_ptr() in found else 0


def _kept_of_passing(passage: Passage, index: int, runs: Sequence[_Run]) -> float:
    """Per sample, what a layer keeps of its outputs that the next layer does not take: nobody else counts it."""
    places = range(len(runs[0].kept_output_bytes))
    return sum(
        _growth(runs, [run.kept_output_bytes[place] for run in runs])
        for place in places
        if passage.passes_by(index, place)
    )


def _backward(made: State) -> None:
    rooted = [output for output in made if output.requires_grad]
    if rooted:
        torch.autograd.backward(rooted, [torch.ones_like(output) for output in rooted])


@torch.no_grad()
def _handed_on(module: nn.Module, samples: Samples, autocast: torch.dtype | None) -> Samples:
    with computing(samples.state[0].device, autocast):
        return replace(samples, state=as_state(module(*samples.state)))


def _facts(chain: ModuleChain, index: int, module: nn.Module, runs: list[_Run], *, flops: float) -> LayerFacts:
    copies = {name for layer, name in (tie.copy for tie in chain.ties) if layer == index}
    sizes = {name: parameter.numel() for name, parameter in module.named_parameters()}
    return LayerFacts(
        name=chain.layers[index].name,
        kind=type(module).__name__,
        num_params=sum(size for name, size in sizes.items() if name not in copies),
        num_shared_params=sum(size for name, size in sizes.items() if name in copies),
        forward_flops=flops,
        saved_bytes=_growth(runs, [run.saved_bytes for run in runs]),
        output_bytes=0.0,
        working_bytes=_growth(runs, [run.working_bytes for run in runs]),
        is_shareable=chain.layers[index].tensor_parallel is not None,
        allocated_bytes=_growth(runs, [run.allocated_bytes for run in runs]),
    )


def _growth(runs: Sequence[_Run], num_bytes: Sequence[int]) -> float:
    """Bytes for one more sample, from those of both runs."""
    small, large = runs
    return max(0.0, (num_bytes[1] - num_bytes[0]) / (large.size - small.size))


def _allocated_bytes(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def _attention_formulas() -> dict[Any, Any]:
    operation = getattr(torch.ops.aten, CPU_ATTENTION, None)
    return {} if operation is None else {operation: _attention_flops}


def _attention_flops(query: Any, key: Any, value: Any, *_: object, **__: object) -> int:
    """Of both products, the whole square of them, from the shapes."""
    return int(sdpa_flop_count(query, key, value))
