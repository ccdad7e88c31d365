"""Bytes and FLOPs of every layer, found by running each with two numbers of samples; nothing is timed."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from stagecut.executor.measure.dataflow import Dataflow
from stagecut.executor.measure.live_bytes import LiveBytes, SavedTensors, Storages, storages
from stagecut.executor.measure.passes import backward
from stagecut.executor.measure.samples import Samples, fresh_state
from stagecut.executor.play.build import build_layer
from stagecut.executor.play.stage import LayerState, as_state, from_state, precision
from stagecut.models.modules.module_chain import ModuleChain
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import SkipEdge

CPU_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
GROUPED_PRODUCT = "_grouped_mm"
"""Operations that torch's FLOP counter ignores: fused attention on a CPU, and products of experts with their tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFacts:
    """One layer; bytes and FLOPs per sample."""

    name: str
    kind: str
    """Class name of the module."""
    num_params: int
    num_shared_params: int
    """Copies of weights owned by another layer."""
    forward_flops: float
    saved_bytes: float
    output_bytes: float
    working_bytes: float
    is_shareable: bool
    """Whether it supports tensor parallelism."""
    allocated_bytes: float
    """Kept by a forward, including its output, according to the GPU's memory counters; 0 on a CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainFacts:
    """A chain of layers, and the tensors that skip some of them."""

    layers: tuple[LayerFacts, ...]
    skip_edges: tuple[SkipEdge, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Memory of one layer's forward and backward for some samples."""

    size: int
    saved_bytes: int
    """Without the layer's outputs."""
    kept_output_bytes: tuple[int, ...]
    """What the backward needs of each output."""
    working_bytes: int
    allocated_bytes: int
    """0 on a CPU."""


def inspect_chain(chain: ModuleChain, samples: Samples, *, autocast: torch.dtype | None) -> ChainFacts:
    """Run the layers of a chain one after another, holding one at a time.

    Bytes per sample are the growth from half of the samples to all of them. What does not grow with the number of
    samples is not counted: copies of weights that autocast makes once per step, and temporary weight gradients.

    Raises
    ------
    BadInputError
        If a layer fails on the output of the previous one.
    """
    large, small = samples, samples.first(samples.size // 2)
    flow, layers, num_layers = Dataflow(small.state), [], len(chain.layers)
    for index in range(num_layers):
        module = build_layer(chain, index, seed=0).to(samples.state[0].device).train()
        loss = chain.loss if index == num_layers - 1 else None
        made_before = flow.comes_from_neighbour()
        with _blamed_on(chain.layers[index].name, small.state):
            runs = [
                _run(module, each, is_first=index == 0, near=made_before, loss=loss, autocast=autocast)
                for each in (small, large)
            ]
        with FlopCounterMode(display=False, custom_mapping=_ignored_formulas()) as counter:
            small = _outputs_of(module, small, autocast)
        large = _outputs_of(module, large, autocast)
        flow.step(index, small.state)
        layers.append((_facts(chain, index, module, runs, flops=counter.get_total_flops() / small.size), runs))
    flow.leave(num_layers - 1)
    return ChainFacts(
        layers=tuple(
            replace(
                facts,
                output_bytes=flow.output_bytes(index) / small.size,
                saved_bytes=facts.saved_bytes + _kept_of_passing(flow, index, runs),
            )
            for index, (facts, runs) in enumerate(layers)
        ),
        skip_edges=flow.skip_edges(small.size),
    )


@contextmanager
def _blamed_on(layer: str, state: LayerState) -> Iterator[None]:
    """Attribute an error in a layer's first run to the layer and its input."""
    try:
        yield
    except Exception as fault:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in state)
        reason = " ".join(str(fault).split())
        raise BadInputError(f"layer {layer!r} fails on an input of shape {shapes}: {reason}") from fault


def _run(
    module: nn.Module,
    samples: Samples,
    *,
    is_first: bool,
    near: Sequence[bool],
    loss: Callable[..., Tensor] | None,
    autocast: torch.dtype | None,
) -> _Run:
    """Run a layer; `near` says for each input whether the previous layer made it."""
    inputs = fresh_state(samples.state, gradients=not is_first)
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)  # otherwise the first backward would allocate it
    device = inputs[0].device
    before_bytes = _allocated_bytes(device)
    saved = SavedTensors()
    with saved, precision(device, autocast):
        outputs = as_state(module(*inputs))
        if loss is not None:
            outputs = (loss(from_state(outputs), samples.targets),)
    allocated_bytes = _allocated_bytes(device) - before_bytes
    made = tuple(output for output in outputs if not _is_one_of(output, inputs))
    taken = [
        tensor for tensor, is_near in zip(inputs, near, strict=True) if is_near and not _is_one_of(tensor, outputs)
    ]
    weights = storages(itertools.chain(module.parameters(), module.buffers()))
    elsewhere = weights.keys() | (storages(made).keys() - storages(inputs).keys())
    kept = {at: storage for at, storage in (saved.found | storages(taken)).items() if at not in elsewhere}
    saved_bytes = sum(storage.nbytes() for storage in kept.values())
    kept_output_bytes = tuple(_kept_bytes(output, saved.found) if _is_one_of(output, made) else 0 for output in outputs)
    gradients = storages(parameter.grad for parameter in module.parameters() if parameter.grad is not None)
    live = LiveBytes(present=kept, passed_over=weights | gradients | storages(outputs))
    saved.found.clear()
    kept.clear()
    with live:
        backward(made, [torch.ones_like(output) if output.requires_grad else None for output in made])
    return _Run(
        size=samples.size,
        saved_bytes=saved_bytes,
        kept_output_bytes=kept_output_bytes,
        working_bytes=live.peak_bytes,
        allocated_bytes=allocated_bytes,
    )


def _is_one_of(tensor: Tensor, state: Iterable[Tensor]) -> bool:
    return any(tensor is other for other in state)


def _kept_bytes(output: Tensor, found: Storages) -> int:
    storage = output.untyped_storage()
    return storage.nbytes() if storage.data_ptr() in found else 0


def _kept_of_passing(flow: Dataflow, index: int, runs: Sequence[_Run]) -> float:
    """Bytes per sample that a layer keeps of outputs that skip the next layer, which nothing else counts."""
    places = range(len(runs[0].kept_output_bytes))
    return sum(
        _growth(runs, [run.kept_output_bytes[place] for run in runs])
        for place in places
        if flow.passes_by(index, place)
    )


@torch.no_grad()
def _outputs_of(module: nn.Module, samples: Samples, autocast: torch.dtype | None) -> Samples:
    with precision(samples.state[0].device, autocast):
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
    """Bytes per additional sample, from both runs."""
    small, large = runs
    return max(0.0, (num_bytes[1] - num_bytes[0]) / (large.size - small.size))


def _allocated_bytes(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def _ignored_formulas() -> dict[Any, Any]:
    """FLOPs of operations that torch ignores, from the shapes."""
    formulas = {CPU_ATTENTION: _attention_flops, GROUPED_PRODUCT: _grouped_flops}
    found = ((getattr(torch.ops.aten, name, None), formula) for name, formula in formulas.items())
    return {operation: formula for operation, formula in found if operation is not None}


def _attention_flops(query: torch.Size, key: torch.Size, value: torch.Size, *_: object, **__: object) -> int:
    """Both products, without discounting a causal mask."""
    return int(sdpa_flop_count(query, key, value))


def _grouped_flops(rows: torch.Size, matrices: torch.Size, *_: object, **__: object) -> int:
    """Every row is multiplied by one of the matrices."""
    return 2 * math.prod(rows) * matrices[-1]
