"""Configuration files against published parameter counts, transformers' own models, and faults."""

import json

import pytest

from stagecut.models.configurations.entry import configuration_entry, configured_precision, is_configuration
from stagecut.models.configurations.types import READERS
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.precision import Precision

BASE = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
}
MOE = {"moe_intermediate_size": 24, "num_experts_per_tok": 2, "num_experts": 6}
LATENT = {
    "moe_intermediate_size": 24,
    "num_experts_per_tok": 2,
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 12,
    "first_k_dense_replace": 1,
}


def sizes(hidden, width, blocks, heads, vocabulary, **others):
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    return {**dict(zip(names, (hidden, width, blocks, heads, vocabulary), strict=True)), **others}


def file_of(folder, **keys):
    path = folder / "config.json"
    path.write_text(json.dumps(keys))
    return str(path)


def num_params(path):
    return configuration_entry(path).profile(precision=Precision.FP16, sequence_length=16).num_params


PUBLISHED = {
    "llama-3-8b": (8.03e9, "llama", sizes(4096, 14336, 32, 32, 128256, num_key_value_heads=8)),
    "llama-3-70b": (70.6e9, "llama", sizes(8192, 28672, 80, 64, 128256, num_key_value_heads=8)),
    "mistral-7b": (7.24e9, "mistral", sizes(4096, 14336, 32, 32, 32000)),
    "mixtral-8x7b": (46.7e9, "mixtral", sizes(4096, 14336, 32, 32, 32000)),
    "qwen2-7b": (7.62e9, "qwen2", sizes(3584, 18944, 28, 28, 152064, num_key_value_heads=4)),
    "qwen3-8b": (8.19e9, "qwen3", sizes(4096, 12288, 36, 32, 151936, num_key_value_heads=8)),
    "gemma-2-9b": (9.24e9, "gemma2", sizes(3584, 14336, 42, 16, 256000, num_key_value_heads=8)),
    "phi-3-mini": (3.82e9, "phi3", sizes(3072, 8192, 32, 32, 32064)),
    "gpt-2": (124.4e6, "gpt2", {"n_embd": 768, "n_layer": 12, "n_head": 12}),
    "gpt-2-xl": (1.558e9, "gpt2", {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
    "gpt-neox-20b": (20.55e9, "gpt_neox", sizes(6144, 24576, 44, 64, 50432)),
    "bert-large": (336e6, "bert", sizes(1024, 4096, 24, 16, 30522)),
    "deepseek-v2": (
        235.7e9,
        "deepseek_v2",
        sizes(
            5120,
            12288,
            60,
            128,
            102400,
            n_routed_experts=160,
            num_experts_per_tok=6,
            moe_intermediate_size=1536,
            first_k_dense_replace=1,
        ),
    ),
    "deepseek-v3": (
        671e9,
        "deepseek_v3",
        sizes(7168, 18432, 61, 128, 129280, n_routed_experts=256, num_experts_per_tok=8, moe_intermediate_size=2048),
    ),
}
"""Counts as published: on the model cards of the released weights (Llama 3, Mistral, Mixtral, Qwen, Gemma 2, Phi-3,
DeepSeek-V2: 235.7 B), Radford et al. 2019 and its release, Black et al. 2022 (20.55 B), Devlin et al. 2019 (336 M with
the pre-training head), DeepSeek-AI 2024 (671 B without the module that predicts further tokens)."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_within_half_a_percent_of_those_published(tmp_path, name):
    count, model_type, keys = PUBLISHED[name]
    assert num_params(file_of(tmp_path, model_type=model_type, **keys)) == pytest.approx(count, rel=0.005)


LIKE_TRANSFORMERS = [
    ("Llama", {**BASE, "num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True}),
    ("Llama", {**BASE, "head_dim": 16, "tie_word_embeddings": True}),
    ("Mistral", BASE),
    ("Mixtral", {**BASE, "num_local_experts": 4}),
    ("Qwen2", {**BASE, "num_key_value_heads": 4}),
    ("Qwen3", {**BASE, "num_key_value_heads": 4}),
    ("Qwen2Moe", {**BASE, **MOE, "num_key_value_heads": 4, "decoder_sparse_step": 2}),
    ("Qwen3Moe", {**BASE, **MOE, "mlp_only_layers": [0]}),
    ("Gemma", {**BASE, "num_key_value_heads": 1}),
    ("Gemma2", BASE),
    ("Gemma3", BASE),
    ("Phi", BASE),
    ("Phi", {**BASE, "qk_layernorm": True}),
    ("Phi3", {**BASE, "pad_token_id": 0}),
    ("GPT2", {"vocab_size": 160, "n_embd": 64, "n_layer": 4, "n_head": 8}),
    ("GPTNeoX", BASE),
    ("GPTNeoX", {**BASE, "use_parallel_residual": False}),
    ("Bert", BASE),
    ("DeepseekV2", {**BASE, **LATENT}),
    ("DeepseekV2", {**BASE, **LATENT, "q_lora_rank": None}),
    ("DeepseekV3", {**BASE, **LATENT}),
]
"""Keys that are left out have the type's defaults in both."""


def counted_by_transformers(name, keys):
    import torch
    import transformers

    model = {"GPT2": "GPT2LMHeadModel", "Bert": "BertForPreTraining"}.get(name, f"{name}ForCausalLM")
    config = getattr(transformers, f"{name}TextConfig" if name == "Gemma3" else f"{name}Config")(**keys)
    with torch.device("meta"):
        built = getattr(transformers, model)(config)
    return config.model_type, sum(weight.numel() for weight in built.parameters())


@pytest.mark.parametrize(("name", "keys"), LIKE_TRANSFORMERS)
def test_parameters_are_those_of_the_model_that_transformers_builds(tmp_path, name, keys):
    pytest.importorskip("transformers")
    model_type, count = counted_by_transformers(name, keys)
    assert num_params(file_of(tmp_path, model_type=model_type, **keys)) == count


def test_every_type_is_compared_with_transformers():
    pytest.importorskip("transformers")
    assert {counted_by_transformers(name, keys)[0] for name, keys in LIKE_TRANSFORMERS} == set(READERS)


@pytest.mark.parametrize(("name", "keys"), LIKE_TRANSFORMERS)
def test_layers_are_consistent_with_their_operators(tmp_path, name, keys):
    """Weights add up, and every tensor is made before it is taken, with as many dimensions."""
    model_type, _ = counted_by_transformers(name, keys)
    entry = configuration_entry(file_of(tmp_path, model_type=model_type, **keys))
    for layer in entry.profile(precision=Precision.FP16, sequence_length=16).layers:
        assert sum(own.weight_bytes for own in layer.operators) == layer.params_bytes + layer.shared_params_bytes
        dims = {"input": None}
        for operator in layer.operators:
            for port in operator.inputs:
                assert port.tensor in dims
                assert dims[port.tensor] is None or len(dims[port.tensor]) == len(port.dims)
            dims |= {tensor.name: tensor.dims for tensor in operator.outputs}


def test_windows_lower_the_flops_of_attention(tmp_path):
    """Per block 4 s w a d instead of 4 s s a d: with s = 16, w = 4, a d = 64 that is 4 x 16 x 12 x 64 less."""
    keys = {**BASE, "model_type": "mistral"}
    whole, part = (
        configuration_entry(file_of(tmp_path, **keys, sliding_window=window)).profile(
            precision=Precision.FP16, sequence_length=16
        )
        for window in (None, 4)
    )
    less = whole.layers[1].forward_flops - part.layers[1].forward_flops
    assert less == 4 * 16 * 12 * 64


def test_text_model_inside_a_larger_one_is_read(tmp_path):
    path = file_of(tmp_path, model_type="mistral3", text_config={"model_type": "mistral", **BASE}, vision_config={})
    assert num_params(path) == num_params(file_of(tmp_path, model_type="mistral", **BASE))


def test_default_sequence_is_that_of_the_file_up_to_a_limit(tmp_path):
    keys = {**BASE, "model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}
    found = [
        configuration_entry(file_of(tmp_path, **keys, max_position_embeddings=most)).default_sequence
        for most in (2048, 131072)
    ]
    assert found == [2048, 8192]


@pytest.mark.parametrize(
    ("keys", "precision"),
    [
        ({}, Precision.FP16),
        ({"torch_dtype": "bfloat16"}, Precision.BF16),
        ({"dtype": "bfloat16"}, Precision.BF16),
        ({"torch_dtype": "float32"}, Precision.FP16),
        ({"text_config": {"torch_dtype": "bfloat16"}}, Precision.BF16),
    ],
)
def test_precision_is_that_of_the_weights_if_they_are_bf16(tmp_path, keys, precision):
    assert configured_precision(file_of(tmp_path, **keys)) is precision


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model_type": "llamma"}, r"model_type 'llamma' are not known \(did you mean 'llama'\?\).*plan profile model"),
        ({"model_type": ["llama"]}, r"model_type \['llama'\] are not known"),
        ({"architectures": ["X"]}, "states no model_type; known: bert, "),
        ({"model_type": "llama"}, "states no hidden_size, which a model of type llama needs"),
        ({"model_type": "llama", **BASE, "vocab_size": "x"}, "vocab_size must be a whole number .* got 'x'"),
        (
            {"model_type": "llama", **BASE, "num_key_value_heads": 3},
            "num_key_value_heads must be a divisor of .* got 3",
        ),
        ({"model_type": "llama", **BASE, "num_attention_heads": 7}, "num_attention_heads must be a divisor of 64"),
        ({"model_type": "llama", **BASE, "num_hidden_layers": 10**6}, "num_hidden_layers must be at most 499"),
        ({"model_type": "mixtral", **BASE, "num_local_experts": 1}, "num_experts_per_tok must be at most 1"),
    ],
)
def test_faults_are_told_with_the_file_and_the_key(tmp_path, keys, message):
    with pytest.raises(BadInputError, match=message) as fault:
        configuration_entry(file_of(tmp_path, **keys))
    assert str(fault.value).startswith(str(tmp_path / "config.json"))


def test_learned_positions_limit_the_sequence(tmp_path):
    entry = configuration_entry(file_of(tmp_path, model_type="gpt2", n_embd=64, n_layer=2, n_head=4))
    with pytest.raises(BadInputError, match="at most 1024, its number of learned positions"):
        entry.profile(precision=Precision.FP16, sequence_length=1025)


def test_profiles_are_no_configurations(tmp_path):
    assert not is_configuration(file_of(tmp_path, layers=[]))
    assert is_configuration(file_of(tmp_path, model_type="x"))
    assert is_configuration(str(tmp_path))
    assert not is_configuration(str(tmp_path / "missing.json"))
