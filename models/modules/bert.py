"""BERT encoders in torch, with their pre-training head."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from stagecut.models.families.bert import BertShape
from stagecut.models.modules.batches import pre_training_batch
from stagecut.models.modules.losses import pre_training_loss
from stagecut.models.modules.module_chain import LayerModule, ModuleChain, Tie
from stagecut.models.modules.sharing import embedding_styles, head_styles
from stagecut.models.modules.transformer import BlockShape, dense_layers
from stagecut.models.modules.weights import init_normal

NORM_EPSILON = 1e-12
"""Devlin et al.'s released code."""


class BertEmbedding(nn.Module):
    """Tokens, positions and segments, norm and dropout."""

    def __init__(self, shape: BertShape, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.positions = nn.Embedding(shape.positions, shape.hidden)
        self.segments = nn.Embedding(shape.segments, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden, eps=NORM_EPSILON)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        """From token and segment ids (samples, tokens) to a hidden state (samples, tokens, width)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.tokens(tokens) + self.positions(places) + self.segments(segments)
        return self.dropout(self.norm(hidden))


class BertHead(nn.Module):
    """Logits of every token, and of the next sentence from the first token."""

    def __init__(self, shape: BertShape) -> None:
        super().__init__()
        self.dense = nn.Linear(shape.hidden, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden, eps=NORM_EPSILON)
        self.project = nn.Linear(shape.hidden, shape.vocabulary)
        self.pooler = nn.Linear(shape.hidden, shape.hidden)
        self.next_sentence = nn.Linear(shape.hidden, 2)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Shapes (samples, tokens, vocabulary) and (samples, 2)."""
        tokens = self.project(self.norm(functional.gelu(self.dense(hidden))))
        return tokens, self.next_sentence(torch.tanh(self.pooler(hidden[:, 0])))


def bert_modules(name: str, shape: BertShape, *, tokens: int, dropout: float | None) -> ModuleChain:
    """The layers of a BERT; the head holds a copy of the token matrix."""
    chosen = shape.dropout if dropout is None else dropout
    block = BlockShape(
        hidden=shape.hidden,
        heads=shape.heads,
        key_heads=shape.heads,
        blocks=shape.blocks,
        causal=False,
        norm_first=False,
        norm_epsilon=NORM_EPSILON,
        dropout=chosen,
    )
    embedding = LayerModule(
        name="embedding",
        build=lambda: init_normal(BertEmbedding(shape, chosen)),
        tensor_parallel=embedding_styles,
    )
    head = LayerModule(
        name="head",
        build=lambda: init_normal(BertHead(shape)),
        tensor_parallel=partial(head_styles, "dense", "project", "pooler"),
    )
    layers = (embedding, *dense_layers(block, width=4 * shape.hidden), head)
    return ModuleChain(
        name=name,
        layers=layers,
        ties=(Tie(owner=(0, "tokens.weight"), copy=(len(layers) - 1, "project.weight")),),
        loss=pre_training_loss,
        batch=partial(pre_training_batch, vocabulary=shape.vocabulary, tokens=tokens),
    )
