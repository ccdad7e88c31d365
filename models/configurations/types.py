"""What the keys of each type of configuration mean, as in transformers 5."""

from collections.abc import Callable
from dataclasses import replace

from stagecut.models.configurations.values import Values
from stagecut.models.families.bert import BertShape
from stagecut.models.families.decoder import Block, DecoderShape
from stagecut.models.families.experts import Experts
from stagecut.models.families.latent_attention import LatentAttention
from stagecut.models.families.transformer import Attention, FeedForward
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.problem import MAX_LAYERS

Shape = DecoderShape | BertShape


def _attention(values: Values, *, biased: bool = False, biased_output: bool = False) -> Attention:
    """Grouped queries; a head is `head_dim` wide, or its part of the hidden width."""
    hidden, heads = values.count("hidden_size"), values.count("num_attention_heads")
    key_heads = values.count_or("num_key_value_heads", 0) or heads
    rule = "a divisor of num_attention_heads"
    require(heads % key_heads == 0, values.source, "num_key_value_heads", f"{rule}, {heads}", key_heads)
    width = values.count_or("head_dim", 0)
    if not width:
        require(hidden % heads == 0, values.source, "num_attention_heads", f"a divisor of {hidden}", heads)
        width = hidden // heads
    return Attention(heads=heads, key_heads=key_heads, head_width=width, biased=biased, biased_output=biased_output)


def _gated(values: Values, *, biased: bool = False) -> FeedForward:
    return FeedForward(width=values.count("intermediate_size"), gated=True, biased=biased)


def _decoder(values: Values, blocks: list[Block]) -> DecoderShape:
    return DecoderShape(
        blocks=tuple(blocks),
        hidden=values.count("hidden_size"),
        vocabulary=values.count("vocab_size"),
        tied=values.flag("tie_word_embeddings"),
    )


def _num_blocks(values: Values) -> int:
    count = values.count("num_hidden_layers")
    require(2 * count + 2 <= MAX_LAYERS, values.source, "num_hidden_layers", f"at most {MAX_LAYERS // 2 - 1}", count)
    return count


def _windows(values: Values) -> list[int | None]:
    """The window of each block: by `layer_types`, or by the rule of the type."""
    count, window = _num_blocks(values), values.count_or("sliding_window", 0) or None
    kinds = values.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == count:
        return [window if kind == "sliding_attention" else None for kind in kinds]
    return [window if _has_window(values, index) else None for index in range(count)]


def _has_window(values: Values, index: int) -> bool:
    match values.model_type:
        case "gemma2":
            return index % 2 == 0
        case "gemma3_text":
            return (index + 1) % values.count_or("sliding_window_pattern", 6) != 0
        case "qwen2" | "qwen3" | "qwen2_moe" | "qwen3_moe":
            return values.flag("use_sliding_window") and index >= values.count_or("max_window_layers", 28)
        case _:
            return True


def _alike(values: Values, attention: Attention, feed_forward: FeedForward | Experts) -> DecoderShape:
    """All blocks of these parts, each with its window."""
    windows = _windows(values)
    blocks = [Block(attention=replace(attention, window=window), feed_forward=feed_forward) for window in windows]
    return _decoder(values, blocks)


def _llama(values: Values) -> Shape:
    """Llama, Mistral, Gemma and Phi-3: `attention_bias` is that of all four products."""
    biased = values.flag("attention_bias")
    attention = _attention(values, biased=biased, biased_output=biased)
    return _alike(values, attention, _gated(values, biased=values.flag("mlp_bias")))


def _gemma2(values: Values) -> Shape:
    shape = _llama(values)
    assert isinstance(shape, DecoderShape)
    normed = values.model_type == "gemma3_text"
    return replace(shape, norm_last=True, blocks=tuple(_with_normed_heads(block, normed) for block in shape.blocks))


def _with_normed_heads(block: Block, normed: bool) -> Block:
    assert isinstance(block.attention, Attention)
    return replace(block, attention=replace(block.attention, normed_heads=normed))


def _qwen2(values: Values) -> Shape:
    return _alike(values, _attention(values, biased=True), _gated(values))


def _qwen3(values: Values) -> Shape:
    return _alike(values, _qwen3_attention(values), _gated(values))


def _qwen3_attention(values: Values) -> Attention:
    biased = values.flag("attention_bias")
    return replace(_attention(values, biased=biased, biased_output=biased), normed_heads=True)


def _mixtral(values: Values) -> Shape:
    return _alike(values, _attention(values), _experts(values, "num_local_experts", width="intermediate_size"))


def _experts(values: Values, count: str, *, width: str, shared: int = 0, gate: bool = False) -> Experts:
    experts, chosen = values.count(count), values.count("num_experts_per_tok")
    require(chosen <= experts, values.source, "num_experts_per_tok", f"at most {experts}, the experts", chosen)
    return Experts(
        width=values.count(width), experts=experts, experts_per_token=chosen, shared_width=shared, shared_gate=gate
    )


def _qwen_moe(values: Values) -> Shape:
    """Blocks with experts, but for those listed and those between steps."""
    shared = values.count_or("shared_expert_intermediate_size", 0) if values.model_type == "qwen2_moe" else 0
    experts = _experts(values, "num_experts", width="moe_intermediate_size", shared=shared, gate=shared > 0)
    old = values.model_type == "qwen2_moe"
    attention = _attention(values, biased=values.flag("qkv_bias")) if old else _qwen3_attention(values)
    step, dense = values.count_or("decoder_sparse_step", 1) or 1, set(values.numbers("mlp_only_layers"))
    shape = _alike(values, attention, experts)
    return replace(
        shape,
        blocks=tuple(
            replace(block, feed_forward=_gated(values)) if index in dense or (index + 1) % step else block
            for index, block in enumerate(shape.blocks)
        ),
    )


def _deepseek(values: Values) -> Shape:
    """Latent attention; the first blocks are dense."""
    width = values.count("moe_intermediate_size")
    shared = width * values.count_or("n_shared_experts", 0)
    experts = _experts(values, "n_routed_experts", width="moe_intermediate_size", shared=shared)
    attention = LatentAttention(
        heads=values.count("num_attention_heads"),
        query_rank=values.count_or("q_lora_rank", 0) or None,
        key_rank=values.count("kv_lora_rank"),
        plain_width=values.count_or("qk_nope_head_dim", 128),
        rotary_width=values.count_or("qk_rope_head_dim", 64),
        value_width=values.count_or("v_head_dim", 128),
        biased=values.flag("attention_bias"),
    )
    num_dense, dense = values.count_or("first_k_dense_replace", 0), _gated(values)
    parts = (dense if index < num_dense else experts for index in range(_num_blocks(values)))
    return _decoder(values, [Block(attention=attention, feed_forward=part) for part in parts])


def _gpt2(values: Values) -> Shape:
    width = values.count_or("n_inner", 0) or 4 * values.count("hidden_size")
    shape = _alike(values, _attention(values, biased=True, biased_output=True), FeedForward(width=width, biased=True))
    positions, dropout = values.count("max_position_embeddings"), values.fraction("resid_pdrop")
    return replace(shape, layer_norm=True, positions=positions, dropout=dropout)


def _gpt_neox(values: Values) -> Shape:
    biased = values.flag("attention_bias")
    attention = _attention(values, biased=biased, biased_output=biased)
    shape = _alike(values, attention, FeedForward(width=values.count("intermediate_size"), biased=True))
    norms = 2 if values.flag("use_parallel_residual") else 0
    return replace(shape, layer_norm=True, parallel_norms=norms, dropout=values.fraction("hidden_dropout"))


def _phi(values: Values) -> Shape:
    attention = replace(
        _attention(values, biased=True, biased_output=True),
        normed_heads=values.flag("qk_layernorm"),
        norm_biased=True,
    )
    shape = _alike(values, attention, FeedForward(width=values.count("intermediate_size"), biased=True))
    dropout = values.fraction("resid_pdrop")
    return replace(shape, layer_norm=True, parallel_norms=1, head_biased=True, dropout=dropout)


def _bert(values: Values) -> Shape:
    attention = _attention(values)
    return BertShape(
        blocks=_num_blocks(values),
        hidden=values.count("hidden_size"),
        heads=attention.heads,
        vocabulary=values.count("vocab_size"),
        positions=values.count("max_position_embeddings"),
        segments=values.count("type_vocab_size"),
        dropout=values.fraction("hidden_dropout_prob"),
        width=values.count("intermediate_size"),
    )


READERS: dict[str, Callable[[Values], Shape]] = {
    "bert": _bert,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gemma": _llama,
    "gemma2": _gemma2,
    "gemma3_text": _gemma2,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mistral": _llama,
    "mixtral": _mixtral,
    "phi": _phi,
    "phi3": _llama,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen_moe,
}
