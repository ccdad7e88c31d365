"""Decoders of transformers in parts, each of which lets the original model prepare its inputs.

Positions, rotary embeddings, causal masks and sliding windows differ from type to type and between releases of
transformers. Therefore no part computes them: it runs the original model's own forward, in which a module that records
its arguments takes the place of the blocks.
"""

from collections.abc import Mapping
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

State = Tensor | tuple[Tensor, Tensor]
"""Hidden state of shape (samples, tokens, width), and the mask if there is one: (samples, tokens), 0 for padding."""


class Recorder(nn.Module):
    """Stands in for the blocks and records the arguments of the first one."""

    def __init__(self, attention_type: str = "full_attention") -> None:
        super().__init__()
        self.attention_type = attention_type  # which transformers 5.0 asks a block for
        self._call: tuple[Tensor, tuple[Any, ...], dict[str, Any]] | None = None

    def forward(self, hidden: Tensor, *others: Any, **named: Any) -> Tensor:
        """Return the hidden state as it is."""
        self._call = hidden, others, named
        return hidden

    def take(self) -> tuple[Tensor, tuple[Any, ...], dict[str, Any]]:
        """The arguments of the last call, which are not held any longer."""
        call, self._call = self._call, None
        assert call is not None
        return call


class Nothing(nn.Module):
    """Stands in for an embedding whose result has been added already."""

    def forward(self, ids: Tensor) -> Tensor:
        """Zero."""
        return torch.zeros((), device=ids.device)


class DecoderEmbedding(nn.Module):
    """All that a decoder does before its first block."""

    def __init__(self, decoder: PreTrainedModel, *, blocks: str, norm: str) -> None:
        super().__init__()
        self.recorder = Recorder()
        self.decoder = _with_children(decoder, {blocks: nn.ModuleList([self.recorder]), norm: nn.Identity()})

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> State:
        """From token ids (samples, tokens) to a hidden state."""
        self.decoder(input_ids=tokens, attention_mask=mask, use_cache=False)
        hidden, _, _ = self.recorder.take()
        return _state(hidden, mask)


class DecoderBlock(nn.Module):
    """A block with all that a decoder computes for it."""

    def __init__(self, block: nn.Module, decoder: PreTrainedModel, *, blocks: str) -> None:
        super().__init__()
        self.block = block
        self.recorder = Recorder(getattr(block, "attention_type", "full_attention"))
        others = (pair for pair in decoder.named_children() if pair[0] != blocks)
        stand_ins = {name: _stand_in(child, decoder.config) for name, child in others}
        self.decoder = _with_children(decoder, {**stand_ins, blocks: nn.ModuleList([self.recorder])})

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> State:
        """Return a state of the same shape."""
        with torch.no_grad():
            self.decoder(inputs_embeds=hidden, attention_mask=mask, use_cache=False)
        _, others, named = self.recorder.take()
        made = self.block(hidden, *others, **named)  # in transformers 5.0 a GPT-2's gives a tuple
        return _state(made[0] if isinstance(made, tuple) else made, mask)


class NormedHead(nn.Module):
    """Final norm and the product with the token matrix; Gemma 2 bounds the logits."""

    def __init__(self, norm: nn.Module, lm_head: nn.Module, *, bound: float | None) -> None:
        super().__init__()
        self.norm = norm
        self.lm_head = lm_head
        self.bound = bound

    def forward(self, hidden: Tensor, _mask: Tensor | None = None) -> Tensor:
        """Logits of shape (samples, tokens, vocabulary)."""
        logits: Tensor = self.lm_head(self.norm(hidden))
        return logits if self.bound is None else self.bound * torch.tanh(logits / self.bound)


def _state(hidden: Tensor, mask: Tensor | None) -> State:
    return hidden if mask is None else (hidden, mask)


def _stand_in(child: nn.Module, config: PreTrainedConfig) -> nn.Module:
    """A child without weights: rotary embeddings are built anew, all else is left to the other layers."""
    if isinstance(child, nn.Embedding):
        return Nothing()
    has_frequencies = next(child.buffers(), None) is not None
    return type(child)(config) if has_frequencies else nn.Identity()


def _with_children(decoder: PreTrainedModel, children: Mapping[str, nn.Module]) -> PreTrainedModel:
    """A shallow copy with other children."""
    part = copy(decoder)
    part._modules = {**decoder._modules, **children}
    return part
