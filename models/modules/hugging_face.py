"""Splits models of Hugging Face transformers into layers."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor, nn
from transformers import (
    BertForMaskedLM,
    BertModel,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.bert.modeling_bert import BertLayer
from transformers.models.gpt2.modeling_gpt2 import GPT2Block
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from stagecut.models.modules.batches import draw_classes
from stagecut.models.modules.losses import class_loss, cross_entropy, num_counted
from stagecut.models.modules.module_chain import CountedLoss, LayerModule, ModuleChain, Tie
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.messages.errors import BadInputError

LONGEST_SAMPLE = 1024
"""Largest default for the tokens of a random sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How to find the parts of an architecture."""

    architecture: type[PreTrainedModel]
    embedding: Callable[[PreTrainedModel], nn.Module]
    blocks: Callable[[PreTrainedModel], nn.ModuleList]
    head: Callable[[PreTrainedModel], nn.Module]
    new_block: Callable[[PreTrainedConfig, int], nn.Module]
    wrapped: Callable[[nn.Module, PreTrainedConfig], nn.Module]
    """Wraps a block so that it takes and returns the hidden state."""
    loss: CountedLoss | None


class Gpt2Embedding(nn.Module):
    """Tokens, positions and dropout."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.wte, self.wpe, self.drop = model.wte, model.wpe, model.drop

    def forward(self, tokens: Tensor) -> Tensor:
        """From token ids (samples, tokens) to a hidden state (samples, tokens, width)."""
        return self.drop(self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device)))


class LlamaBlock(nn.Module):
    """A block with rotary positions of its own, which the original model computes once."""

    def __init__(self, block: nn.Module, config: PreTrainedConfig) -> None:
        super().__init__()
        self.block = block
        self.rotary = LlamaRotaryEmbedding(config=config)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return a hidden state of the same shape."""
        places = torch.arange(hidden.shape[1], device=hidden.device).unsqueeze(0)
        return self.block(hidden, position_ids=places, position_embeddings=self.rotary(hidden, places))


class NormedHead(nn.Module):
    """Final norm and the product with the token matrix."""

    def __init__(self, norm: nn.Module, lm_head: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.lm_head = lm_head

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits of shape (samples, tokens, vocabulary)."""
        return self.lm_head(self.norm(hidden))


class PoolerHead(nn.Module):
    """Returns the hidden state and the pooled first token."""

    def __init__(self, pooler: nn.Module) -> None:
        super().__init__()
        self.pooler = pooler

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Shapes (samples, tokens, width) and (samples, width)."""
        return hidden, self.pooler(hidden)


next_token_loss = CountedLoss(
    part=lambda logits, labels, count: cross_entropy(logits[:, :-1], labels[:, 1:]) / count,
    count=lambda labels: num_counted(labels[:, 1:]),
)
"""For decoders, whose labels are the tokens themselves, shifted by one here as in transformers."""


FAMILIES = (
    Family(
        architecture=GPT2LMHeadModel,
        embedding=lambda model: Gpt2Embedding(model.transformer),
        blocks=lambda model: model.transformer.h,
        head=lambda model: NormedHead(model.transformer.ln_f, model.lm_head),
        new_block=GPT2Block,
        wrapped=lambda block, _config: block,
        loss=next_token_loss,
    ),
    Family(
        architecture=LlamaForCausalLM,
        embedding=lambda model: model.model.embed_tokens,
        blocks=lambda model: model.model.layers,
        head=lambda model: NormedHead(model.model.norm, model.lm_head),
        new_block=LlamaDecoderLayer,
        wrapped=LlamaBlock,
        loss=next_token_loss,
    ),
    Family(
        architecture=BertForMaskedLM,
        embedding=lambda model: model.bert.embeddings,
        blocks=lambda model: model.bert.encoder.layer,
        head=lambda model: model.cls,
        new_block=BertLayer,
        wrapped=lambda block, _config: block,
        loss=class_loss,
    ),
    Family(
        architecture=BertModel,
        embedding=lambda model: model.embeddings,
        blocks=lambda model: model.encoder.layer,
        head=lambda model: nn.Identity() if model.pooler is None else PoolerHead(model.pooler),
        new_block=BertLayer,
        wrapped=lambda block, _config: block,
        loss=None,
    ),
)


def split(
    source: PreTrainedModel | PreTrainedConfig, *, architecture: str | None, sequence_length: int | None
) -> ModuleChain:
    """The chain of a model, or of the model that a configuration describes.

    Raises
    ------
    BadInputError
        If the family is unknown, or there are fewer positions than tokens.
    """
    family = _family(source, architecture)
    given = isinstance(source, PreTrainedModel)
    config = _fused(source.config if given else source)
    layers = _parts_of_model(family, source, config) if given else _parts_of_config(family, config)
    return ModuleChain(
        name=f"{config.model_type}:{family.architecture.__name__}",
        layers=layers,
        ties=_ties(family, source if given else _skeleton(family, config, device="meta"), len(layers)),
        loss=family.loss,
        batch=partial(_batch, vocabulary=config.vocab_size, tokens=_num_tokens(config, sequence_length)),
    )


def _family(source: PreTrainedModel | PreTrainedConfig, architecture: str | None) -> Family:
    if isinstance(source, PreTrainedModel):
        wanted, own = type(source).__name__, type(source.config)
    else:
        own = type(source)
        named = architecture or next(iter(source.architectures or ()), None)
        default = next((each for each in FAMILIES if each.architecture.config_class is own), None)
        wanted = named or (default.architecture.__name__ if default else f"a model of {own.__name__}")
    for family in FAMILIES:
        if family.architecture.__name__ == wanted and family.architecture.config_class is own:
            return family
    known = ", ".join(each.architecture.__name__ for each in FAMILIES)
    raise BadInputError(f"Hugging Face model: {wanted} with {own.__name__} is not supported; supported: {known}")


def _parts_of_model(family: Family, model: PreTrainedModel, config: PreTrainedConfig) -> tuple[LayerModule, ...]:
    blocks = (family.wrapped(block, config) for block in family.blocks(model))
    return _named(*(partial(_copied, part) for part in (family.embedding(model), *blocks, family.head(model))))


def _parts_of_config(family: Family, config: PreTrainedConfig) -> tuple[LayerModule, ...]:
    blocks = (partial(_drawn_block, family, config, index) for index in range(config.num_hidden_layers))
    return _named(
        lambda: family.embedding(_skeleton(family, config)), *blocks, lambda: family.head(_skeleton(family, config))
    )


def _named(*builders: Callable[[], nn.Module]) -> tuple[LayerModule, ...]:
    names = ("embedding", *(f"block{index}" for index in range(len(builders) - 2)), "head")
    return tuple(LayerModule(name=name, build=build) for name, build in zip(names, builders, strict=True))


def _skeleton(family: Family, config: PreTrainedConfig, *, device: str | None = None) -> PreTrainedModel:
    """The initialised model without its blocks; on the device "meta" it takes no memory."""
    bare = deepcopy(config)
    bare.num_hidden_layers = 0
    with torch.device(device or torch.get_default_device()):
        model = family.architecture(bare)
    model.config.num_hidden_layers = config.num_hidden_layers  # the initial weights of a block depend on it
    return model


def _drawn_block(family: Family, config: PreTrainedConfig, index: int) -> nn.Module:
    block = family.new_block(config, index)
    draw = _skeleton(family, config, device="meta")._init_weights
    return family.wrapped(block.apply(draw), config)


def _copied(part: nn.Module) -> nn.Module:
    """A copy with fused attention."""
    copy = deepcopy(part)
    for each in copy.modules():
        if isinstance(getattr(each, "config", None), PreTrainedConfig):
            each.config = _fused(each.config)
    return copy


def _fused(config: PreTrainedConfig) -> PreTrainedConfig:
    """The configuration with fused attention, which needs no explicit mask."""
    fused = deepcopy(config)
    if fused._attn_implementation in {None, "eager"}:
        fused._attn_implementation = "sdpa"
    return fused


def _ties(family: Family, model: PreTrainedModel, num_layers: int) -> tuple[Tie, ...]:
    """Weights shared by the embedding and the head of a model."""
    names = {weight: name for name, weight in family.embedding(model).named_parameters()}
    held = family.head(model).named_parameters()
    return tuple(Tie(owner=(0, names[weight]), copy=(num_layers - 1, name)) for name, weight in held if weight in names)


def _num_tokens(config: PreTrainedConfig, sequence_length: int | None) -> int:
    positions = config.max_position_embeddings
    if sequence_length is None:
        return min(positions, LONGEST_SAMPLE)
    fits = 1 <= sequence_length <= positions
    require(fits, config.model_type, "sequence_length", f"between 1 and {positions}", sequence_length)
    return sequence_length


def _batch(num_samples: int, generator: Generator, *, vocabulary: int, tokens: int) -> tuple[Tensor, Tensor]:
    """Random texts, which are also their own labels."""
    text = draw_classes((num_samples, tokens), vocabulary, generator=generator)
    return text, text
