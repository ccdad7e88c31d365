"""BERT encoders in torch, with their pre-training head."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from stagecut.models.families.bert import BertShape
from stagecut.models.modules.batches import pre_training_batch
from stagecut.models.modules.losses import pre_training_loss
from stagecut.models.modules.module_chain import LayerModule, ModuleChain, Tie
from stagecut.models.modules.operators import LoopPart, OperatorModule
from stagecut.models.modules.sharing import embedding_styles, head_styles
from stagecut.models.modules.transformer import BlockShape, dense_layers
from stagecut.models.modules.transformer_operators import (
    WIDTH,
    Operators,
    embedding_operators,
    head_operators,
    linear_operator,
    linear_weights,
    norm_operator,
    product,
    run_first_token,
)
from stagecut.models.modules.weights import init_normal
from stagecut.planner.core.operators.operators import HIDDEN, INPUT, SAMPLE, TOKEN, Port

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
        operators=_embedding_operators(draws=chosen > 0),
    )
    head = LayerModule(
        name="head",
        build=lambda: init_normal(BertHead(shape)),
        tensor_parallel=partial(head_styles, "dense", "project", "pooler"),
        operators=_head_operators(),
    )
    layers = (embedding, *dense_layers(block, width=shape.width or 4 * shape.hidden), head)
    return ModuleChain(
        name=name,
        layers=layers,
        ties=(Tie(owner=(0, "tokens.weight"), copy=(len(layers) - 1, "project.weight")),),
        loss=pre_training_loss,
        batch=partial(pre_training_batch, vocabulary=shape.vocabulary, tokens=tokens),
    )


def _embedding_operators(*, draws: bool) -> Operators:
    ids = Port(tensor=INPUT, dims=(SAMPLE, TOKEN))
    weights = {"positions.weight": ("position", HIDDEN), "segments.weight": ("segment", HIDDEN)}
    normed = norm_operator("norm", biased=True)
    return {
        **embedding_operators(positions=False, draws=False),
        "positions and segments": OperatorModule(run=_run_positions_and_segments, weights=weights, also=(ids,)),
        "norm": replace(normed, run=_run_norm_and_dropout, draws=draws),
    }


def _head_operators() -> Operators:
    weights = {
        **linear_weights("pooler", out=WIDTH, given=HIDDEN, biased=True),
        **linear_weights("next_sentence", out="class", given=WIDTH, biased=True),
    }
    return {
        **head_operators(normed=True, norm_biased=True, biased=True),
        "dense": linear_operator("dense", out=WIDTH, given=HIDDEN, biased=True),
        "activation": OperatorModule(run=lambda _, inputs, __: functional.gelu(inputs[0]), weights={}),
        "first token": OperatorModule(run=run_first_token, weights={}),
        "next sentence": OperatorModule(run=_run_next_sentence, weights=weights),
    }


def _run_positions_and_segments(layer: BertEmbedding, inputs: tuple[Tensor, ...], part: LoopPart) -> Tensor:
    hidden, _, segments = inputs
    first = part.start(TOKEN, hidden.shape[1])
    return hidden + layer.positions.weight[first : first + hidden.shape[1]] + layer.segments(segments)


def _run_norm_and_dropout(layer: BertEmbedding, inputs: tuple[Tensor, ...], _: LoopPart) -> Tensor:
    result: Tensor = layer.dropout(layer.norm(inputs[0]))
    return result


def _run_next_sentence(layer: BertHead, inputs: tuple[Tensor, ...], part: LoopPart) -> Tensor:
    """The width between both products is divided: the second one is a sum."""
    pooled = torch.tanh(functional.linear(inputs[0], layer.pooler.weight, layer.pooler.bias))
    return product(layer.next_sentence, pooled, part)
