"""The keys of a configuration, with transformers' defaults for its type."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.messages.errors import BadInputError

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "mixtral": {"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2": {"num_key_value_heads": 32},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128},
    "qwen2_moe": {
        "num_key_value_heads": 16,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
        "qkv_bias": True,
    },
    "qwen3_moe": {
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
    },
    "gemma": {"num_key_value_heads": 16, "head_dim": 256, "vocab_size": 256000, "tie_word_embeddings": True},
    "gemma2": {
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 256000,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
    },
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "sliding_window": 4096,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
    },
    "gpt2": {"n_positions": 1024, "vocab_size": 50257, "resid_pdrop": 0.1, "tie_word_embeddings": True},
    "gpt_neox": {"attention_bias": True, "use_parallel_residual": True},
    "bert": {"type_vocab_size": 2, "hidden_dropout_prob": 0.1, "max_position_embeddings": 512},
    "deepseek_v2": {"q_lora_rank": 1536, "kv_lora_rank": 512, "n_shared_experts": 2, "first_k_dense_replace": 0},
    "deepseek_v3": {"q_lora_rank": 1536, "kv_lora_rank": 512, "n_shared_experts": 1, "first_k_dense_replace": 3},
}
"""What transformers 5 takes where a file does not state a key, as far as it differs from what the readers assume."""
OTHER_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "num_experts": "num_local_experts",
}
"""Names of the same things in other types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """The keys of a configuration."""

    source: str
    """Path of the file, for messages."""
    model_type: str
    stated: Mapping[str, Any]

    def get(self, key: str) -> Any:
        """What the file states, or transformers' default; None where there is neither."""
        defaults = DEFAULTS.get(self.model_type, {})
        for values in (self.stated, defaults):
            for name in (key, OTHER_NAMES.get(key, key)):
                if name in values:
                    return values[name]
        return None

    def count(self, key: str) -> int:
        """A whole number of at least one, which has to be there."""
        value = self.get(key)
        if value is None:
            raise BadInputError(f"{self.source}: states no {key}, which a model of type {self.model_type} needs")
        return self._checked(key, value, least=1)

    def count_or(self, key: str, default: int) -> int:
        """A whole number of at least zero, or a default where there is none."""
        value = self.get(key)
        return default if value is None else self._checked(key, value, least=0)

    def flag(self, key: str) -> bool:
        """Whether it is true; false where it is not stated."""
        value = self.get(key)
        require(value in (None, True, False), self.source, key, "true or false", value)
        return bool(value)

    def fraction(self, key: str) -> float:
        """A probability; 0 where it is not stated."""
        value = self.get(key)
        fits = value is None or (isinstance(value, int | float) and 0 <= value < 1)
        require(fits, self.source, key, "from 0 to below 1", value)
        return float(value or 0)

    def numbers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers; empty where it is not stated."""
        value = self.get(key) or []
        fits = isinstance(value, list) and all(isinstance(each, int) for each in value)
        require(fits, self.source, key, "a list of whole numbers", value)
        return tuple(value)

    def _checked(self, key: str, value: object, *, least: int) -> int:
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= 10**9
        require(fits, self.source, key, f"a whole number of at least {least}", value)
        assert isinstance(value, int)
        return value
