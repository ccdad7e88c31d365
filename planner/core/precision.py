"""Number formats used in training."""

from enum import StrEnum


class Precision(StrEnum):
    """Number format of weights and activations during training."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"

    @property
    def num_bytes(self) -> int:
        """Bytes per number."""
        return 4 if self is Precision.FP32 else 2
