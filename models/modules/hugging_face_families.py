"""The architectures of transformers that can be split, and where their parts are."""

from collections.abc import Callable
from dataclasses import dataclass

import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel

from stagecut.models.modules.hugging_face_decoders import DecoderBlock, DecoderEmbedding, NormedHead
from stagecut.models.modules.losses import class_loss, cross_entropy, num_counted
from stagecut.models.modules.module_chain import CountedLoss


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How to find the parts of an architecture."""

    name: str
    """Name of the class in transformers, which imports it when it is asked for."""
    embedding: Callable[[PreTrainedModel], nn.Module]
    blocks: Callable[[PreTrainedModel], nn.ModuleList]
    head: Callable[[PreTrainedModel], nn.Module]
    wrapped: Callable[[nn.Module, PreTrainedModel], nn.Module]
    """Wraps a block so that it takes and returns the state between layers; the model is one on the device "meta" that
    has this block alone."""
    loss: CountedLoss | None

    @property
    def architecture(self) -> type[PreTrainedModel]:
        """The class itself."""
        found: type[PreTrainedModel] = getattr(transformers, self.name)
        return found


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


def _decoder(name: str, *, blocks: str = "layers", norm: str = "norm") -> Family:
    """A causal language model, by the names of its blocks and its final norm."""
    return Family(
        name=name,
        embedding=lambda model: DecoderEmbedding(model.base_model, blocks=blocks, norm=norm),
        blocks=lambda model: getattr(model.base_model, blocks),
        head=lambda model: NormedHead(
            getattr(model.base_model, norm),
            model.get_output_embeddings(),
            bound=getattr(model.config, "final_logit_softcapping", None),
        ),
        wrapped=lambda block, model: DecoderBlock(block, model.base_model, blocks=blocks),
        loss=next_token_loss,
    )


FAMILIES = (
    _decoder("GPT2LMHeadModel", blocks="h", norm="ln_f"),
    _decoder("GPTNeoXForCausalLM", norm="final_layer_norm"),
    _decoder("LlamaForCausalLM"),
    _decoder("MistralForCausalLM"),
    _decoder("MixtralForCausalLM"),
    _decoder("Qwen2ForCausalLM"),
    _decoder("Qwen2MoeForCausalLM"),
    _decoder("Qwen3ForCausalLM"),
    _decoder("Qwen3MoeForCausalLM"),
    _decoder("GemmaForCausalLM"),
    _decoder("Gemma2ForCausalLM"),
    _decoder("Gemma3ForCausalLM"),
    _decoder("DeepseekV2ForCausalLM"),
    _decoder("DeepseekV3ForCausalLM"),
    _decoder("PhiForCausalLM", norm="final_layernorm"),
    _decoder("Phi3ForCausalLM"),
    Family(
        name="BertForMaskedLM",
        embedding=lambda model: model.bert.embeddings,
        blocks=lambda model: model.bert.encoder.layer,
        head=lambda model: model.cls,
        wrapped=lambda block, _model: block,
        loss=class_loss,
    ),
    Family(
        name="BertModel",
        embedding=lambda model: model.embeddings,
        blocks=lambda model: model.encoder.layer,
        head=lambda model: nn.Identity() if model.pooler is None else PoolerHead(model.pooler),
        wrapped=lambda block, _model: block,
        loss=None,
    ),
)
