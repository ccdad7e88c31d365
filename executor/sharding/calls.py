"""One call of an operator on this rank's parts: conversions before it, and those of the gradients in its backward."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from stagecut.executor.sharding.moving import moved
from stagecut.executor.sharding.place import MeshPlace
from stagecut.executor.sharding.rows import moved_rows, steps_of_rows
from stagecut.executor.sharding.weights import Use
from stagecut.planner.sharding.collectives import Collective
from stagecut.planner.sharding.conversions import Step, conversion
from stagecut.planner.sharding.edges import TensorEnds
from stagecut.planner.sharding.placements import Placements


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How an input comes to an operator, and its gradient back."""

    ends: TensorEnds
    saved: bool
    """Whether only the part that was made is kept for the backward, and gathered again."""
    num_tensors: int = 1
    """Three for rows of tokens for experts: rows, keys and sizes."""

    def there(self, tensor: Tensor, place: MeshPlace) -> tuple[Step, ...]:
        """Steps of the input, of which this rank has a part."""
        return _steps(place, tensor, self.ends.made, self.ends.taken)

    def back(self, gradient: Tensor, keys: Sequence[Tensor], place: MeshPlace) -> Tensor:
        """The gradient, from where the operator leaves it to where the maker of the input needs it.

        `keys` are those of rows, and their sizes.
        """
        if keys:
            source, bundle = self.ends.taken_gradient, (gradient, keys[0], keys[1])
            return moved_rows(bundle, source, steps_of_rows(bundle, (source, self.ends.made_gradient), place), place)[0]
        steps = _steps(place, gradient, self.ends.taken_gradient, self.ends.made_gradient)
        return moved(gradient, self.ends.taken_gradient, steps, place)


def _steps(place: MeshPlace, tensor: Tensor, source: Any, target: Any) -> tuple[Step, ...]:
    num_bytes = tensor.numel() * tensor.element_size() * place.mesh.parts(source)
    steps = conversion(place.mesh, source, target, num_bytes=num_bytes)
    assert steps is not None, f"no way from {source} to {target}"  # found before anything starts
    return steps


def _divided(steps: tuple[Step, ...], source: Placements) -> tuple[tuple[Step, ...], tuple[Step, ...], Placements]:
    """The steps to what is kept, those from the first all-gather on, and the placements between them."""
    gathers = (index for index, step in enumerate(steps) if step.collective is Collective.ALL_GATHER)
    first = next(gathers, len(steps))
    for step in steps[:first]:
        source = (*source[: step.axis], step.to, *source[step.axis + 1 :])
    return steps[:first], steps[first:], source


@dataclass(slots=True, kw_only=True, eq=False)
class _Kept:
    """What is kept of a gathered tensor instead of itself."""

    gather: Callable[[], Tensor]
    needed: bool
    """Whether the backward needs it; weights are gathered in any case, as FSDP does."""


@dataclass(kw_only=True, eq=False)
class Call:
    """What one call has in common with its backward."""

    place: MeshPlace
    ways: Sequence[Way]
    weights: Sequence[Use]
    gathers_again: bool
    """Whether gathered tensors are gathered again for the backward; not while a whole layer is repeated."""
    kept: dict[int, _Kept] = field(default_factory=dict)
    """By the address of the storage of the gathered tensor."""
    again: dict[int, Tensor] = field(default_factory=dict)
    """Gathered again, while the backward of the operator runs."""

    def take(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The inputs and weights as the operator needs them; one node of the graph."""
        apply: Any = _Take.apply
        return tuple(apply(self, *tensors, *(weight.parameter for weight in self.weights)))

    def leave(self, outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The outputs, such that their backward begins by gathering again what was not kept."""
        self.kept = {address: kept for address, kept in self.kept.items() if kept.needed}
        apply: Any = _Leave.apply
        return tuple(apply(self, *outputs)) if self.kept else tuple(outputs)

    @contextmanager
    def keeping_parts(self) -> Iterator[None]:
        """Save parts instead of what was gathered from them."""
        if not self.kept:
            yield
            return
        with torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
            yield

    def gather_again(self) -> None:
        """Before the backward of the operator."""
        self.again = {address: kept.gather() for address, kept in self.kept.items()}

    def taken_rows(self, tensors: Sequence[Tensor], way: Way) -> tuple[Tensor, ...]:
        """Rows of tokens as the operator needs them."""
        bundle = tensors[0], tensors[1], tensors[2]
        own, again, source = _divided(steps_of_rows(bundle, (way.ends.made, way.ends.taken), self.place), way.ends.made)
        part = moved_rows(bundle, way.ends.made, own, self.place)

        def gathered() -> tuple[Tensor, ...]:
            return moved_rows(part, source, again, self.place)

        rows, keys, sizes = gathered()
        if again and way.saved:
            self._remember(rows, lambda: gathered()[0], needed=False)
        return rows, keys.clone(), sizes.clone()

    def taken_input(self, tensor: Tensor, way: Way) -> Tensor:
        """An input as the operator needs it."""
        own, again, source = _divided(way.there(tensor, self.place), way.ends.made)
        part = moved(tensor, way.ends.made, own, self.place)

        def gathered() -> Tensor:
            return moved(part, source, again, self.place).contiguous()

        whole = gathered()
        if again and way.saved:
            self._remember(whole, gathered, needed=False)
        return whole

    def taken_weight(self, weight: Use) -> Tensor:
        """A weight as the operator needs it."""
        whole = weight.for_use()
        if not weight.is_gathered_on_use:
            return whole.detach()
        self._remember(whole, weight.for_use, needed=weight.parameter.requires_grad)
        return whole

    def _remember(self, gathered: Tensor, gather: Callable[[], Tensor], *, needed: bool) -> None:
        if self.gathers_again:
            self.kept[gathered.untyped_storage().data_ptr()] = _Kept(gather=gather, needed=needed)

    def _pack(self, tensor: Tensor) -> object:
        address = tensor.untyped_storage().data_ptr()
        if address not in self.kept:
            return tensor
        self.kept[address].needed = True
        return address, tensor.shape, tensor.stride(), tensor.storage_offset()

    def _unpack(self, packed: Any) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        address, shape, stride, offset = packed
        return self.again[address].as_strided(shape, stride, offset)


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: Tensor) -> tuple[Tensor, ...]:
        taken: list[Tensor] = []
        shapes = []
        given = iter(tensors)
        for way in call.ways:
            own = list(islice(given, way.num_tensors))
            shapes.append(own[0].shape)
            taken += (call.taken_input(own[0], way),) if way.num_tensors == 1 else call.taken_rows(own, way)
        ctx.call, ctx.shapes = call, shapes
        ctx.keys = [None if tensor.is_floating_point() else tensor for tensor in taken]
        ctx.mark_non_differentiable(*(tensor for tensor in taken if not tensor.is_floating_point()))
        return (*taken, *(call.taken_weight(weight) for weight in call.weights))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        call, needed = ctx.call, iter(ctx.needs_input_grad[1:])
        call.again = {}
        backs: list[Tensor | None] = []
        coming = iter(zip(gradients, ctx.keys, needed, strict=False))
        for way, shape in zip(call.ways, ctx.shapes, strict=True):
            own = list(islice(coming, way.num_tensors))
            gradient, _, wanted = own[0]
            keys = [key for _, key, _ in own[1:]]
            backs.append(_cut(way.back(gradient, keys, call.place), shape) if wanted else None)
            backs += [None] * (way.num_tensors - 1)
        for weight, gradient in zip(call.weights, gradients[len(backs) :], strict=True):
            if weight.parameter.requires_grad:
                weight.add(gradient)
        return (None, *backs, *(None for _ in call.weights))


def _cut(gradient: Tensor, shape: torch.Size) -> Tensor:
    """Without the rows that were added to make parts even."""
    for dim, size in enumerate(shape):
        gradient = gradient.narrow(dim, 0, size) if gradient.shape[dim] > size else gradient
    return gradient


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, *outputs: Tensor) -> tuple[Tensor, ...]:
        ctx.call = call
        ctx.mark_non_differentiable(*(tensor for tensor in outputs if not tensor.is_floating_point()))
        return tuple(output.view_as(output) for output in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        ctx.call.gather_again()
        return (None, *gradients)
