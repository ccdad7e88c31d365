"""The weights of one stage: those that its optimizer steps, and the versions that minibatches compute with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from stagecut.executor.play.stage import LayerState, StageModule, as_state

Tensors = dict[str, Tensor]
"""By global name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """The weights of a minibatch; leaves of its graph, so that their gradients are its own."""

    tensors: Tensors
    own_updates: int
    """Updates 1 .. so many of the worker itself are in it, and no others of its own."""
    clock: int
    """Number of first waves of all workers that are in it."""


class StageWeights:
    """Weights that change after each minibatch, while minibatches in flight keep theirs.

    Minibatch p + N_m computes with the version that step p leaves, and with what was pulled up to it.

    Parameters
    ----------
    versions
        Whether minibatches have copies of their own; otherwise they compute with the weights themselves, which must
        not change then while any is in flight.
    """

    def __init__(self, stage: StageModule, *, versions: bool) -> None:
        self._stage, self.copies = stage, versions
        self.master: dict[str, nn.Parameter] = {
            name: parameter for name, parameter in stage.global_parameters() if parameter.requires_grad
        }
        """What the optimizer steps."""
        self._layers = [
            (layer, {own: f"{name}.{own}" for own, parameter in layer.named_parameters() if parameter.requires_grad})
            for name, layer in zip(stage.names, stage.layers, strict=True)
        ]
        self.versions: dict[int, Version] = {}
        """By the minibatch that will compute with it, or does."""

    def start(self, minibatches: Sequence[int], *, own_updates: int, clock: int) -> None:
        """Let minibatches compute with the weights as they are now."""
        own = Version(tensors=self._copy(), own_updates=own_updates, clock=clock)
        self.versions |= dict.fromkeys(minibatches, own)

    @torch.no_grad()
    def merge(self, gate: int, change: Callable[[str, Tensor], Tensor], names: Sequence[str], *, clock: int) -> None:
        """Change the weights themselves, and those of the gate and of all minibatches after it."""
        for name in names:
            self.master[name].copy_(change(name, self.master[name]))
        changed: dict[int, Version] = {}
        for minibatch, version in self.versions.items():
            if minibatch >= gate:
                if id(version) not in changed:
                    new = {name: _leaf(change(name, version.tensors[name])) for name in names}
                    own = version.own_updates
                    changed[id(version)] = Version(tensors=version.tensors | new, own_updates=own, clock=clock)
                self.versions[minibatch] = changed[id(version)]

    def forward(self, minibatch: int, state: LayerState) -> LayerState:
        """The stage's outputs, computed with the minibatch's version."""
        tensors = self.versions[minibatch].tensors
        for layer, names in self._layers:
            call = _call_of(layer, {own: tensors[name] for own, name in names.items()})
            if self._stage.recompute and torch.is_grad_enabled():
                state = as_state(checkpoint(call, *state, use_reentrant=False))
            else:
                state = as_state(call(*state))
        return state

    def take_gradients(self, minibatch: int) -> dict[str, Tensor | None]:
        """Drop the version of a minibatch, and give the gradients that it has: without copies, all since the last step.

        Minibatches with the same version have theirs one after another.
        """
        version, found = self.versions.pop(minibatch), {}
        for name, tensor in version.tensors.items():
            found[name] = tensor.grad
            if self.copies:
                tensor.grad = None
        return found

    def set_gradients(self, gradients: Mapping[str, Tensor | None]) -> None:
        """What the optimizer's next step, or the next push, will take."""
        for name, gradient in gradients.items():
            self.master[name].grad = gradient

    def _copy(self) -> Tensors:
        if not self.copies:
            return dict(self.master)
        return {name: _leaf(parameter.detach().clone()) for name, parameter in self.master.items()}


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.requires_grad_()


def _call_of(layer: nn.Module, own: Mapping[str, Tensor]) -> Callable[..., LayerState]:
    def call(*state: Tensor) -> LayerState:
        output: LayerState = functional_call(layer, dict(own), state)
        return output

    return call
