"""GPT decoders in torch."""

from functools import partial

from torch import nn

from stagecut.models.families.gpt import GptShape
from stagecut.models.modules.batches import next_token_batch
from stagecut.models.modules.losses import class_loss
from stagecut.models.modules.module_chain import LayerModule, ModuleChain, Tie
from stagecut.models.modules.sharing import embedding_styles, head_styles
from stagecut.models.modules.tokens import TokenEmbedding, TokenHead
from stagecut.models.modules.transformer import BlockShape, dense_layers
from stagecut.models.modules.transformer_operators import embedding_operators, head_operators
from stagecut.models.modules.weights import init_normal


def gpt_modules(name: str, shape: GptShape, *, tokens: int, dropout: float | None) -> ModuleChain:
    """The layers of a GPT; the head holds a copy of the token matrix."""
    chosen = shape.dropout if dropout is None else dropout
    block = BlockShape(
        hidden=shape.hidden,
        heads=shape.heads,
        key_heads=shape.heads,
        blocks=shape.blocks,
        causal=True,
        gelu="tanh",
        dropout=chosen,
    )
    embedding = LayerModule(
        name="embedding",
        build=partial(_embedding, shape, chosen),
        tensor_parallel=embedding_styles,
        operators=embedding_operators(positions=True, draws=chosen > 0),
    )
    head = LayerModule(
        name="head",
        build=partial(_head, shape, block),
        tensor_parallel=partial(head_styles, "project"),
        operators=head_operators(normed=shape.final_norm, norm_biased=True),
    )
    layers = (embedding, *dense_layers(block, width=4 * shape.hidden), head)
    return ModuleChain(
        name=name,
        layers=layers,
        ties=(Tie(owner=(0, "tokens.weight"), copy=(len(layers) - 1, "project.weight")),),
        loss=class_loss,
        batch=partial(next_token_batch, vocabulary=shape.vocabulary, tokens=tokens),
    )


def _embedding(shape: GptShape, dropout: float) -> nn.Module:
    return init_normal(
        TokenEmbedding(vocabulary=shape.vocabulary, hidden=shape.hidden, positions=shape.positions, dropout=dropout)
    )


def _head(shape: GptShape, block: BlockShape) -> nn.Module:
    norm = block.norm() if shape.final_norm else None
    return init_normal(TokenHead(vocabulary=shape.vocabulary, hidden=shape.hidden, norm=norm))
