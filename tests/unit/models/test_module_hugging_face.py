"""Transformers' models split into layers compute what they compute whole."""

from functools import partial

import pytest
import torch

from stagecut.models.modules.losses import IGNORED
from stagecut.planner.core.messages.errors import BadInputError

VOCABULARY = 61
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2}
WIDTHS = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 3, "vocab_size": VOCABULARY}

GEMMA_3_KINDS = ["sliding_attention", "full_attention", "sliding_attention"]


def gpt2_config(**options):
    from transformers import GPT2Config

    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2Config(**{**WIDTHS, **quiet, **SPECIAL, "n_positions": 16, **options})


def llama_config(**options):
    from transformers import LlamaConfig

    widths = {"num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 16}
    return LlamaConfig(**{**WIDTHS, **widths, **SPECIAL, **options})


def bert_config(**options):
    from transformers import BertConfig

    widths = {"intermediate_size": 48, "max_position_embeddings": 16}
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return BertConfig(**{**WIDTHS, **widths, **quiet, **options})


def decoder_config(name, **options):
    """Keys that all decoders with rotary embeddings share; windows are shorter than the texts of these tests."""
    import transformers

    widths = {"num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 16, "pad_token_id": 0}
    return getattr(transformers, name)(**{**WIDTHS, **widths, **SPECIAL, **options})


def neox_config():
    from transformers import GPTNeoXConfig

    widths = {"intermediate_size": 48, "max_position_embeddings": 16}
    return GPTNeoXConfig(**WIDTHS, **widths, **SPECIAL)


def expert_config(name, **options):
    """Grouped products, which transformers takes for experts, have no double precision."""
    experts = {"num_experts_per_tok": 2, "moe_intermediate_size": 24, "experts_implementation": "eager"}
    return decoder_config(name, **{**experts, **options})


def mixtral_config(**options):
    return expert_config("MixtralConfig", **{"num_local_experts": 4, **options})


def deepseek_config(name):
    """Latent attention; the first block has no experts."""
    latent = {"q_lora_rank": 16, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}
    experts = {"n_routed_experts": 4, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
    return expert_config(name, num_key_value_heads=4, **latent, **experts)


DECODERS = {
    "gpt2": ("GPT2LMHeadModel", gpt2_config),
    "gpt2-untied": ("GPT2LMHeadModel", partial(gpt2_config, tie_word_embeddings=False)),
    "gpt_neox": ("GPTNeoXForCausalLM", neox_config),
    "llama": ("LlamaForCausalLM", llama_config),
    "llama-tied": ("LlamaForCausalLM", partial(llama_config, tie_word_embeddings=True)),
    "mistral": ("MistralForCausalLM", partial(decoder_config, "MistralConfig", sliding_window=4)),
    "mixtral": ("MixtralForCausalLM", mixtral_config),
    "qwen2": (
        "Qwen2ForCausalLM",
        partial(decoder_config, "Qwen2Config", use_sliding_window=True, sliding_window=4, max_window_layers=1),
    ),
    "qwen2_moe": (
        "Qwen2MoeForCausalLM",
        partial(
            expert_config, "Qwen2MoeConfig", num_experts=4, shared_expert_intermediate_size=24, mlp_only_layers=[1]
        ),
    ),
    "qwen3": ("Qwen3ForCausalLM", partial(decoder_config, "Qwen3Config", head_dim=8)),
    "qwen3_moe": ("Qwen3MoeForCausalLM", partial(expert_config, "Qwen3MoeConfig", num_experts=4, head_dim=8)),
    "gemma": ("GemmaForCausalLM", partial(decoder_config, "GemmaConfig", head_dim=8)),
    "gemma2": ("Gemma2ForCausalLM", partial(decoder_config, "Gemma2Config", head_dim=8, sliding_window=4)),
    "gemma3": (
        "Gemma3ForCausalLM",
        partial(decoder_config, "Gemma3TextConfig", head_dim=8, sliding_window=4, layer_types=GEMMA_3_KINDS),
    ),
    "deepseek_v2": ("DeepseekV2ForCausalLM", partial(deepseek_config, "DeepseekV2Config")),
    "deepseek_v3": ("DeepseekV3ForCausalLM", partial(deepseek_config, "DeepseekV3Config")),
    "phi": ("PhiForCausalLM", partial(decoder_config, "PhiConfig")),
    "phi3": ("Phi3ForCausalLM", partial(decoder_config, "Phi3Config", sliding_window=5)),
}
MODELS = {
    **DECODERS,
    "bert": ("BertForMaskedLM", bert_config),
    "bert-plain": ("BertModel", bert_config),
}
"""Architectures, and what makes their configurations: transformers imports a model with its first one."""


def chain_of(*args, **options):
    from stagecut.models.hugging_face import chain_of as split

    return split(*args, **options)


def whole_model(name, dtype, **options):
    import transformers

    architecture, config = MODELS[name]
    torch.manual_seed(0)
    return getattr(transformers, architecture)._from_config(config(), **options).to(dtype).train()


def run(modules, inputs):
    state = inputs if isinstance(inputs, tuple) else (inputs,)
    for module in modules:
        state = module(*state)
        state = state if isinstance(state, tuple) else (state,)
    return state


def outputs(model, tokens):
    result = model(tokens)
    return (result.logits,) if hasattr(result, "logits") else (result.last_hidden_state, result.pooler_output)


def gradient_pairs(chain, modules):
    """Gradients of every weight in its layer and in the original model; copies are added to their owners."""
    pairs = {
        (index, name): [weight.grad, dict(layer.build.args[0].named_parameters())[name].grad]
        for index, (layer, module) in enumerate(zip(chain.layers, modules, strict=True))
        for name, weight in module.named_parameters()
    }
    for tie in chain.ties:
        pairs[tie.owner][0] = pairs[tie.owner][0] + pairs.pop(tie.copy)[0]
    return zip(*pairs.values(), strict=True)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("name", MODELS)
def test_output_and_gradients_are_those_of_the_whole_model(name, dtype, tolerance):
    model = whole_model(name, dtype)
    chain = chain_of(model)
    modules = [layer.build() for layer in chain.layers]
    tokens = torch.randint(VOCABULARY, (2, 12), generator=torch.Generator().manual_seed(1))
    expected, found = outputs(model, tokens), run(modules, tokens)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    for each in (expected, found):
        sum((tensor * torch.linspace(-1, 1, tensor.shape[-1], dtype=dtype)).mean() for tensor in each).backward()
    ours, theirs = gradient_pairs(chain, modules)
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("name", DECODERS)
def test_masks_leave_padding_out_as_in_the_whole_model(name, padding):
    """Texts of 7, 12 and 11 tokens; the labels of the padding do not count."""
    model = whole_model(name, torch.float32)
    chain = chain_of(model)
    tokens = torch.randint(VOCABULARY, (3, 12), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(12) >= torch.tensor([[5], [0], [1]])).long()
    mask = mask if padding == "left" else mask.flip(1)
    labels = tokens.masked_fill(mask == 0, IGNORED)
    expected = model(tokens, attention_mask=mask, labels=labels)
    (found,) = run([layer.build() for layer in chain.layers], (tokens, mask))
    torch.testing.assert_close(found, expected.logits, rtol=1e-6, atol=1e-6)
    assert chain.loss(found, labels).item() == pytest.approx(expected.loss.item(), rel=1e-6)
    (unmasked,) = run([layer.build() for layer in chain.layers], tokens)
    own = mask[:, :, None].bool()
    assert torch.allclose(unmasked * own, found * own, atol=1e-6) == (padding == "right")


@pytest.mark.parametrize("name", MODELS)
def test_attention_is_computed_as_the_model_chooses(name):
    """Plain attention takes its softmax in fp32 whatever the precision, which the fused one does not."""
    model = whole_model(name, torch.float64, attn_implementation="eager")
    modules = [layer.build() for layer in chain_of(model).layers]
    tokens = torch.randint(VOCABULARY, (2, 12), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(run(modules, tokens), outputs(model, tokens), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_layers_of_a_configuration_have_the_weights_of_the_whole_model(name):
    """Names, shapes and deviations; every layer is built by itself."""
    architecture, config = MODELS[name]
    given, drawn = chain_of(whole_model(name, torch.float32)), chain_of(config(), architecture=architecture)
    assert [layer.name for layer in drawn.layers] == ["embedding", "block0", "block1", "block2", "head"]
    assert [layer.name for layer in drawn.layers] == [layer.name for layer in given.layers]
    assert (drawn.name, drawn.ties) == (given.name, given.ties)
    for old, new in zip(given.layers, drawn.layers, strict=True):
        weights, fresh = (dict(layer.build().named_parameters()) for layer in (old, new))
        assert {key: weight.shape for key, weight in fresh.items()} == {key: w.shape for key, w in weights.items()}
        for key, weight in fresh.items():
            if weight.dim() > 1 and weight.numel() > 500:
                assert weight.std().item() == pytest.approx(weights[key].std().item(), rel=0.15), key


def test_tied_weights_are_told():
    chains = {name: chain_of(config(), architecture=architecture) for name, (architecture, config) in MODELS.items()}
    found = {name for name, chain in chains.items() if chain.ties}
    assert found == {"gpt2", "llama-tied", "gemma", "gemma2", "gemma3", "bert"}
    assert all(len(chains[name].ties) == 1 for name in found)


def test_segments_may_be_given_to_an_encoder():
    model = whole_model("bert", torch.float64)
    modules = [layer.build() for layer in chain_of(model).layers]
    tokens = torch.randint(VOCABULARY, (2, 12))
    segments = (torch.arange(12) > 5).long().expand(2, 12)
    (found,) = run(modules, (tokens, segments))
    torch.testing.assert_close(found, model(tokens, token_type_ids=segments).logits, rtol=1e-12, atol=1e-12)


def test_loss_is_that_of_transformers():
    """Transformers computes it in fp32."""
    for name in (*DECODERS, "bert"):
        model = whole_model(name, torch.float32)
        chain = chain_of(model, sequence_length=12)
        inputs, targets = chain.batch(2, torch.Generator().manual_seed(0))
        (logits,) = run([layer.build() for layer in chain.layers], inputs)
        assert chain.loss(logits, targets).item() == pytest.approx(model(inputs, labels=targets).loss.item(), rel=1e-6)


def test_configuration_alone_means_the_language_model():
    assert chain_of(bert_config()).name == "bert:BertForMaskedLM"
    assert chain_of(gpt2_config()).name == "gpt2:GPT2LMHeadModel"


def test_other_families_are_refused_with_those_known():
    from transformers import T5Config

    with pytest.raises(BadInputError, match=r"T5Config is not supported; supported: GPT2LMHeadModel, GPTNeo"):
        chain_of(T5Config())


def test_router_loss_is_refused_because_the_last_layer_cannot_know_it():
    with pytest.raises(BadInputError, match="the loss of its routers is not computed; set it to False"):
        chain_of(mixtral_config(output_router_logits=True))


def test_experts_can_be_built_in_double_precision():
    """Which `plan run --check` does; the grouped products that transformers prefers are for fp32 at most."""
    torch.set_default_dtype(torch.float64)
    try:
        chain = chain_of(mixtral_config(experts_implementation="grouped_mm"))
        modules = [layer.build() for layer in chain.layers]
    finally:
        torch.set_default_dtype(torch.float32)
    (logits,) = run(modules, torch.zeros((1, 4), dtype=torch.int64))
    assert logits.dtype == torch.float64
    assert torch.isfinite(logits).all()


def test_sequence_longer_than_the_positions_is_refused():
    with pytest.raises(BadInputError, match="sequence_length must be between 1 and 16, got 17"):
        chain_of(gpt2_config(), sequence_length=17)


def test_layers_are_built_without_memory_on_the_meta_device():
    with torch.device("meta"):
        assert all(weight.is_meta for weight in chain_of(llama_config()).layers[1].build().parameters())
