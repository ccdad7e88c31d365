"""Llama decoders in torch."""

from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from stagecut.models.families.llama import LlamaShape
from stagecut.models.modules.batches import next_token_batch
from stagecut.models.modules.losses import class_loss
from stagecut.models.modules.module_chain import LayerModule, ModuleChain
from stagecut.models.modules.sharing import embedding_styles, feed_forward_styles, head_styles
from stagecut.models.modules.tokens import TokenEmbedding, TokenHead
from stagecut.models.modules.transformer import BlockShape, ResidualPart, attention_layer, init_part, repeated
from stagecut.models.modules.transformer_operators import (
    embedding_operators,
    head_operators,
    residual_operators,
    swiglu_operators,
)
from stagecut.models.modules.weights import init_normal

ROTARY_BASE = 500_000.0
"""Llama 3's (Llama Team 2024, section 3.2)."""


class SwiGlu(nn.Module):
    """down(silu(gate(x)) * up(x)) (Shazeer, arXiv 2002.05202)."""

    def __init__(self, *, hidden: int, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, width, bias=False)
        self.up = nn.Linear(hidden, width, bias=False)
        self.down = nn.Linear(width, hidden, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Process each token independently."""
        return self.down(functional.silu(self.gate(hidden)) * self.up(hidden))


def llama_modules(name: str, shape: LlamaShape, *, tokens: int) -> ModuleChain:
    """The layers of a Llama."""
    block = decoder_block(shape, rotary_base=ROTARY_BASE)
    feed_forward = LayerModule(
        name="feed-forward",
        build=partial(_feed_forward, shape, block),
        tensor_parallel=partial(feed_forward_styles, "gate", "up"),
        divisible=shape.width,
        operators=residual_operators(block, swiglu_operators()),
    )
    return decoder_modules(name, shape, block, feed_forward=feed_forward, tokens=tokens)


def decoder_block(shape: LlamaShape, *, rotary_base: float) -> BlockShape:
    """RMSNorm, rotary positions, grouped queries; neither biases nor dropout."""
    return BlockShape(
        hidden=shape.hidden,
        heads=shape.heads,
        key_heads=shape.key_heads,
        blocks=shape.blocks,
        causal=True,
        biased=False,
        rotary_base=rotary_base,
    )


def decoder_modules(
    name: str, shape: LlamaShape, block: BlockShape, *, feed_forward: LayerModule, tokens: int
) -> ModuleChain:
    """Embedding, blocks and head, each block with this kind of feed-forward part."""
    return ModuleChain(
        name=name,
        layers=(
            _embedding(shape),
            *repeated(shape.blocks, attention_layer(block), feed_forward),
            _head(shape, block),
        ),
        loss=class_loss,
        batch=partial(next_token_batch, vocabulary=shape.vocabulary, tokens=tokens),
    )


def _embedding(shape: LlamaShape) -> LayerModule:
    return LayerModule(
        name="embedding",
        build=lambda: init_normal(TokenEmbedding(vocabulary=shape.vocabulary, hidden=shape.hidden)),
        tensor_parallel=embedding_styles,
        operators=embedding_operators(positions=False, draws=False),
    )


def _head(shape: LlamaShape, block: BlockShape) -> LayerModule:
    return LayerModule(
        name="head",
        build=lambda: init_normal(TokenHead(vocabulary=shape.vocabulary, hidden=shape.hidden, norm=block.norm())),
        tensor_parallel=partial(head_styles, "project"),
        operators=head_operators(normed=True, norm_biased=False),
    )


def _feed_forward(shape: LlamaShape, block: BlockShape) -> nn.Module:
    inner = SwiGlu(hidden=shape.hidden, width=shape.width)
    return init_part(ResidualPart(block, inner), block, inner.down)
