"""Attention part and feed-forward part of every transformer."""

from dataclasses import dataclass, replace
from functools import partial
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

from stagecut.models.modules.module_chain import LayerModule
from stagecut.models.modules.sharing import attention_styles, feed_forward_styles
from stagecut.models.modules.transformer_operators import attention_operators, gelu_operators, residual_operators
from stagecut.models.modules.weights import TRANSFORMER_DEVIATION, init_normal


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShape:
    """Parameters common to the parts of all blocks."""

    hidden: int
    heads: int
    key_heads: int
    blocks: int
    """Each has two residual sums."""
    causal: bool
    biased: bool = True
    """Whether there are biases and LayerNorm; otherwise no biases and RMSNorm."""
    norm_first: bool = True
    """Whether the norm comes before the part (GPT-2), otherwise after the sum (BERT)."""
    norm_epsilon: float = 1e-5
    rotary_base: float | None = None
    """Base of rotary positions; None: the embedding adds positions."""
    gelu: str = "none"
    """Torch's name of the approximation."""
    dropout: float = 0.0

    def norm(self) -> nn.Module:
        """A new norm over the hidden width."""
        kind = nn.LayerNorm if self.biased else nn.RMSNorm
        return kind(self.hidden, eps=self.norm_epsilon)


class ResidualPart(nn.Module):
    """Norm, an inner function, dropout and the residual sum."""

    def __init__(self, shape: BlockShape, inner: nn.Module) -> None:
        super().__init__()
        self.norm = shape.norm()
        self.inner = inner
        self.dropout = nn.Dropout(shape.dropout)
        self.norm_first = shape.norm_first

    def forward(self, hidden: Tensor) -> Tensor:
        """Return a hidden state of the same shape (samples, tokens, width)."""
        if self.norm_first:
            return hidden + self.dropout(self.inner(self.norm(hidden)))
        return self.norm(hidden + self.dropout(self.inner(hidden)))


class Attention(nn.Module):
    """Queries, keys, values, fused attention and the projection.

    The number of heads follows from the width of the projected tensors, so that each device may hold some of them.
    """

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.head_width = shape.hidden // shape.heads
        key_width = self.head_width * shape.key_heads
        self.query = nn.Linear(shape.hidden, shape.hidden, bias=shape.biased)
        self.key = nn.Linear(shape.hidden, key_width, bias=shape.biased)
        self.value = nn.Linear(shape.hidden, key_width, bias=shape.biased)
        self.project = nn.Linear(shape.hidden, shape.hidden, bias=shape.biased)
        self.causal = shape.causal
        self.dropout = shape.dropout
        self.rotary_base = shape.rotary_base

    def forward(self, hidden: Tensor) -> Tensor:
        """Attend over the tokens of each sample."""
        query, key, value = (self._heads(product(hidden)) for product in (self.query, self.key, self.value))
        if self.rotary_base is not None:
            query, key = rotate(query, key, base=self.rotary_base)
        return self.project(self._joined(self._attend(query, key, value)))

    def turned(self, query: Tensor, key: Tensor, *, first: int) -> tuple[Tensor, Tensor]:
        """Projected queries and keys with rotary positions, if there are any; `first` is that of the first token."""
        if self.rotary_base is None:
            return query, key
        turned = rotate(self._heads(query), self._heads(key), base=self.rotary_base, first=first)
        return self._joined(turned[0]), self._joined(turned[1])

    def mix(self, query: Tensor, key: Tensor, value: Tensor, *, first: int) -> Tensor:
        """Attention of some tokens, from position `first`, to all tokens; shapes (samples, tokens, heads x width)."""
        return self._joined(self._attend(*(self._heads(each) for each in (query, key, value)), first=first))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, *, first: int = 0) -> Tensor:
        some = query.shape[2] < key.shape[2]
        return functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=_earlier(query, key, first=first) if self.causal and some else None,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal and not some,
            enable_gqa=query.shape[1] != key.shape[1],
        )

    def _joined(self, heads: Tensor) -> Tensor:
        """From (samples, heads, tokens, width) to (samples, tokens, heads x width)."""
        return heads.transpose(1, 2).flatten(2)

    def _heads(self, projected: Tensor) -> Tensor:
        """From (samples, tokens, heads x width) to (samples, heads, tokens, width)."""
        return projected.view(*projected.shape[:2], -1, self.head_width).transpose(1, 2)


class FeedForward(nn.Module):
    """Two linear layers with GeLU in between."""

    def __init__(self, shape: BlockShape, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(shape.hidden, width)
        self.down = nn.Linear(width, shape.hidden)
        self.gelu = shape.gelu

    def forward(self, hidden: Tensor) -> Tensor:
        """Process each token independently."""
        return self.down(functional.gelu(self.up(hidden), approximate=self.gelu))


def _earlier(query: Tensor, key: Tensor, *, first: int) -> Tensor:
    """Which keys each query sees: those of its own and of earlier tokens."""
    return torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril(first)


def rotate(query: Tensor, key: Tensor, *, base: float, first: int = 0) -> tuple[Tensor, Tensor]:
    """Rotate pairs of elements by angles proportional to the position (Su et al., arXiv 2104.09864).

    Pairs consist of the first and the second half of a head, shape (samples, heads, tokens, width). `first` is the
    position of the first token.
    """
    tokens, width = query.shape[-2:]
    places = torch.arange(first, first + tokens, device=query.device, dtype=torch.float32)
    steps = base ** (-torch.arange(0, width, 2, device=query.device, dtype=torch.float32) / width)
    angles = torch.outer(places, steps)
    cosine, sine = angles.cos().to(query.dtype), angles.sin().to(query.dtype)
    return _turned(query, cosine, sine), _turned(key, cosine, sine)


def _turned(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def attention_layer(shape: BlockShape) -> LayerModule:
    """Attention part, sharded by heads."""
    return LayerModule(
        name="attention",
        build=partial(_attention, shape),
        tensor_parallel=attention_styles,
        divisible=shape.key_heads,
        operators=residual_operators(shape, attention_operators(biased=shape.biased, draws=shape.dropout > 0)),
    )


def dense_layers(shape: BlockShape, *, width: int) -> tuple[LayerModule, ...]:
    """Attention part and feed-forward part of each block, the latter with GeLU and sharded by its width."""
    feed_forward = LayerModule(
        name="feed-forward",
        build=partial(_feed_forward, shape, width),
        tensor_parallel=partial(feed_forward_styles, "up"),
        divisible=width,
        operators=residual_operators(shape, gelu_operators()),
    )
    return repeated(shape.blocks, attention_layer(shape), feed_forward)


def repeated(blocks: int, *parts: LayerModule) -> tuple[LayerModule, ...]:
    """The parts of every block, named like `block3.attention`."""
    return tuple(replace(part, name=f"block{block}.{part.name}") for block in range(blocks) for part in parts)


def init_part(part: ResidualPart, shape: BlockShape, *last: nn.Linear) -> ResidualPart:
    """Initialise a part; pre-norm parts get smaller weights in the linear layers before the residual sum.

    The sum over all parts then has the variance of one (Radford et al. 2019, section 2.3).
    """
    init_normal(part)
    if shape.norm_first:
        for product in last:
            nn.init.normal_(product.weight, std=last_deviation(shape))
    return part


def last_deviation(shape: BlockShape) -> float:
    """Of the weights before a residual sum."""
    return TRANSFORMER_DEVIATION / (sqrt(2 * shape.blocks) if shape.norm_first else 1.0)


def _attention(shape: BlockShape) -> nn.Module:
    inner = Attention(shape)
    return init_part(ResidualPart(shape, inner), shape, inner.project)


def _feed_forward(shape: BlockShape, width: int) -> nn.Module:
    inner = FeedForward(shape, width)
    return init_part(ResidualPart(shape, inner), shape, inner.down)
